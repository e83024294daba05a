package election

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/eventd/eventd/test/fakelock"
)

// fakeLock is a fake lock that is an Announcer.
type fakeLock struct{ *fakelock.Lock }

func (l fakeLock) Announced() Announcement {
	a, _ := l.Lock.Announced().(Announcement)
	return a
}

func newLock(s *fakelock.Store, name, identity string) fakeLock {
	return fakeLock{fakelock.New(s, name, identity)}
}

// options are the default ones with a lock.
func options(l resourcelock.Interface) Options {
	o := DefaultOptions()
	o.Lock = l
	return o
}

// replica is an elector with work that ends after its context.
type replica struct {
	*Elector
	t      *testing.T
	lock   fakeLock
	stop   context.CancelFunc
	result chan error

	mu    sync.Mutex
	terms []context.Context
	// finish is how long the work continues after its context has ended.
	finish time.Duration
}

func newReplica(t *testing.T, l fakeLock, change ...func(*Options)) *replica {
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

// end stops the replica and returns the result of Run.
func (r *replica) end() error {
	r.stop()
	return <-r.result
}

// log collects the lines of the default verbosity, except "Became the leader".
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

// twoReplicas starts replicas a and b, of which a leads.
func twoReplicas(t *testing.T, change ...func(*Options)) (s *fakelock.Store, a, b *replica) {
	s = fakelock.NewStore()
	a = newReplica(t, newLock(s, "lease", "a"), change...).start()
	synctest.Wait()
	requireLeader(t, a)
	b = newReplica(t, newLock(s, "lease", "b"), change...).start()
	synctest.Wait()
	requireStandby(t, b)
	return s, a, b
}

func requireLeader(t *testing.T, r *replica) {
	t.Helper()
	if !r.Leading() {
		t.Fatalf("%s does not lead", r.Identity())
	}
	if l := r.Leader(); l.Identity != r.Identity() {
		t.Fatalf("%s leads, and its leader is %q", r.Identity(), l.Identity)
	}
}

func requireStandby(t *testing.T, r *replica) {
	t.Helper()
	if r.Leading() {
		t.Fatalf("%s leads", r.Identity())
	}
}

// elapse lets time pass, and everything that happens in it.
func elapse(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func withWatch(s *fakelock.Store) func(*Options) {
	return func(o *Options) { o.Watch = s.Watch }
}

// setHolder overwrites the holder of the Lease by force.
func setHolder(t *testing.T, s *fakelock.Store, holder string) {
	t.Helper()
	o, _ := s.Get("lease")
	o.Record.HolderIdentity, o.Record.LeaseDurationSeconds = holder, 15
	if _, err := s.Put("lease", o); err != nil {
		t.Error(err)
	}
}

// touch writes the Lease without a change of the record, as a new label does.
func touch(s *fakelock.Store) {
	o, _ := s.Get("lease")
	if _, err := s.Put("lease", o); err != nil {
		panic(err)
	}
}
