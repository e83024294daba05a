package election

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

// store is the server's side of locks: named records, each write of which is
// refused unless it names the version that it was made upon. A bubble needs it
// in memory.
type store struct {
	mu      sync.Mutex
	objects map[string]*object
	version int
	watch   map[int]func()
	watches int
}

type object struct {
	record    resourcelock.LeaderElectionRecord
	announced Announcement
	version   int
}

func newStore() *store { return &store{objects: map[string]*object{}, watch: map[int]func(){}} }

func (s *store) get(name string) (object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.objects[name]
	if o == nil {
		return object{}, apierrors.NewNotFound(schema.GroupResource{Resource: "leases"}, name)
	}
	return *o, nil
}

// put writes an object upon a version, 0 being none.
func (s *store) put(name string, o object) (object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	resource := schema.GroupResource{Resource: "leases"}
	switch now := s.objects[name]; {
	case now == nil && o.version != 0:
		return object{}, apierrors.NewNotFound(resource, name)
	case now != nil && o.version == 0:
		return object{}, apierrors.NewAlreadyExists(resource, name)
	case now != nil && now.version != o.version:
		return object{}, apierrors.NewConflict(resource, name, fmt.Errorf("version %d is not %d", o.version, now.version))
	}
	s.version++
	o.version = s.version
	s.objects[name] = &o
	for _, changed := range s.watch {
		changed()
	}
	return o, nil
}

func (s *store) delete(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.objects, name)
	for _, changed := range s.watch {
		changed()
	}
}

// holder is whom a lock names.
func (s *store) holder(name string) string {
	o, _ := s.get(name)
	return o.record.HolderIdentity
}

// watcher is an Options.Watch of all objects.
func (s *store) watcher(ctx context.Context, changed func()) error {
	s.mu.Lock()
	s.watches++
	id := s.watches
	s.watch[id] = changed
	s.mu.Unlock()
	changed()
	<-ctx.Done()
	s.mu.Lock()
	delete(s.watch, id)
	s.mu.Unlock()
	return ctx.Err()
}

// operation is one call to a memoryLock.
type operation string

const (
	opGet    operation = "get"
	opCreate operation = "create"
	opUpdate operation = "update"
)

// memoryLock is a lock in a store. What goes wrong on the way to the server and
// back is done by way, which calls it any number of times, or not at all.
type memoryLock struct {
	store     *store
	name      string
	identity  string
	announces Announcement
	seen      object

	mu     sync.Mutex
	way    func(ctx context.Context, op operation, ask func() error) error
	events []string
	asked  map[operation]int
}

func newLock(s *store, name, identity string) *memoryLock {
	return &memoryLock{store: s, name: name, identity: identity, asked: map[operation]int{}}
}

// obstruct makes something happen to all requests from now on; nil is nothing.
func (l *memoryLock) obstruct(way func(ctx context.Context, op operation, ask func() error) error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.way = way
}

func (l *memoryLock) do(ctx context.Context, op operation, ask func() error) error {
	l.mu.Lock()
	l.asked[op]++
	way := l.way
	l.mu.Unlock()
	if way == nil {
		return ask()
	}
	return way(ctx, op, ask)
}

func (l *memoryLock) requests() map[operation]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.asked)
}

func (l *memoryLock) recorded() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.events)
}

func (l *memoryLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	var got object
	err := l.do(ctx, opGet, func() (err error) {
		got, err = l.store.get(l.name)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	l.seen = got
	raw, err := json.Marshal(got.record)
	return &got.record, fmt.Appendf(raw, "@%d", got.version), err
}

func (l *memoryLock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, opCreate, object{record: r})
}

func (l *memoryLock) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, opUpdate, object{record: r, version: l.seen.version})
}

func (l *memoryLock) write(ctx context.Context, op operation, o object) error {
	if o.record.HolderIdentity == l.identity {
		o.announced = l.announces
	}
	var written object
	err := l.do(ctx, op, func() (err error) {
		written, err = l.store.put(l.name, o)
		return err
	})
	if err == nil {
		l.seen = written
	}
	return err
}

func (l *memoryLock) RecordEvent(event string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, event)
}

func (l *memoryLock) Identity() string        { return l.identity }
func (l *memoryLock) Describe() string        { return l.name }
func (l *memoryLock) Announced() Announcement { return l.seen.announced }

// Ways of requests.

type way = func(ctx context.Context, op operation, ask func() error) error

var errBroken = apierrors.NewInternalError(fmt.Errorf("broken"))

func refused(context.Context, operation, func() error) error { return errBroken }

// only obstructs one operation.
func only(affected operation, w way) way {
	return func(ctx context.Context, op operation, ask func() error) error {
		if op != affected {
			return ask()
		}
		return w(ctx, op, ask)
	}
}

// answerLost has the request take effect, but not be answered.
func answerLost(ctx context.Context, _ operation, ask func() error) error {
	_ = ask()
	return errBroken
}

// hanging never arrives, and ends with its context.
func hanging(ctx context.Context, _ operation, _ func() error) error {
	<-ctx.Done()
	return ctx.Err()
}

// slow takes a while each way.
func slow(d time.Duration) way {
	return func(_ context.Context, _ operation, ask func() error) error {
		time.Sleep(d)
		err := ask()
		time.Sleep(d)
		return err
	}
}

// stuck ignores its context until it is let go, and arrives then.
func stuck(letGo <-chan struct{}) way {
	return func(_ context.Context, _ operation, ask func() error) error {
		<-letGo
		return ask()
	}
}

// abandoned ends with its context, and what it asks for arrives all the same, as
// of a request over HTTP.
func abandoned(ctx context.Context, arrive func() error) error {
	answered := make(chan error, 1)
	go func() { answered <- arrive() }()
	select {
	case err := <-answered:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// options are the default ones with a lock.
func options(l resourcelock.Interface) Options {
	o := DefaultOptions()
	o.Lock = l
	return o
}

// replica is one elector that runs, with work that ends when it is told to.
type replica struct {
	*Elector
	t      *testing.T
	lock   *memoryLock
	stop   context.CancelFunc
	result chan error

	mu    sync.Mutex
	terms []context.Context
	// finish is how long the work goes on after it was told to stop.
	finish time.Duration
}

func newReplica(t *testing.T, l *memoryLock, change ...func(*Options)) *replica {
	t.Helper()
	o := options(l)
	for _, c := range change {
		c(&o)
	}
	e, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return &replica{Elector: e, t: t, lock: l}
}

func (r *replica) start() *replica { return r.startIn(r.t.Context()) }

// startIn starts it with the values of a context.
func (r *replica) startIn(ctx context.Context) *replica {
	ctx, r.stop = context.WithCancel(context.WithoutCancel(ctx))
	result, ended := make(chan error, 1), make(chan struct{})
	r.result = result
	go func() {
		defer close(ended)
		result <- r.Run(ctx, r.lead)
	}()
	r.t.Cleanup(func() { // for a test that has failed
		r.stop()
		<-ended
	})
	return r
}

func (r *replica) lead(ctx context.Context) error {
	r.mu.Lock()
	r.terms = append(r.terms, ctx)
	r.mu.Unlock()
	<-ctx.Done()
	time.Sleep(r.finish)
	return ctx.Err()
}

// led is how many times it has led.
func (r *replica) led() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.terms)
}

func (r *replica) lastTerm() context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.terms[len(r.terms)-1]
}

// end stops it and waits for that.
func (r *replica) end() error {
	r.stop()
	return <-r.result
}

// log is what has been logged at the default verbosity, a line each, without who
// became the leader.
type log struct {
	mu    sync.Mutex
	lines []string
}

func (l *log) context(ctx context.Context) context.Context {
	return klog.NewContext(ctx, funcr.New(func(_, args string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if !strings.Contains(args, `"Became the leader"`) {
			l.lines = append(l.lines, args)
		}
	}, funcr.Options{}))
}

// require checks that one line was logged since the last time, with all of these
// parts; none if there are no parts.
func (l *log) require(t *testing.T, parts ...string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.lines) != min(len(parts), 1) {
		t.Fatalf("%d lines are logged: %q", len(l.lines), l.lines)
	}
	for _, part := range parts {
		if !strings.Contains(l.lines[0], part) {
			t.Errorf("%s\nis not in\n%s", part, l.lines[0])
		}
	}
	l.lines = nil
}
