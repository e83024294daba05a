package election

import (
	"context"
	"errors"
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

// each runs a test for every entry of a table, in a bubble of its own.
func each[V any](t *testing.T, table map[string]V, test func(t *testing.T, v V)) {
	for name, v := range table {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, v) })
		})
	}
}

// elapse lets time pass, and everything that happens in it.
func elapse(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

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

// watching makes an elector watch its lock.
func watching(o *Options) { o.Watch = o.Lock.(fakeLock).Watch }

func forceHolder(s *fakelock.Store, holder string) {
	o, _ := s.Get("lease")
	o.Record.HolderIdentity, o.Record.LeaseDurationSeconds = holder, 15
	s.Set("lease", o.Record)
}

// touch writes the Lease without a change of the record, as a new label does.
func touch(s *fakelock.Store) {
	o, _ := s.Get("lease")
	s.Set("lease", o.Record)
}

// replica is an elector with work that ends after its context.
type replica struct {
	*Elector
	t      *testing.T
	lock   fakeLock
	logged log
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

// start returns after what the replica does at once. It ends with the test.
func (r *replica) start() *replica {
	ctx, stop := context.WithCancel(r.logged.context(context.WithoutCancel(r.t.Context())))
	result, ended := make(chan error, 1), make(chan struct{})
	r.stop, r.result = stop, result
	go func() {
		defer close(ended)
		result <- r.Run(ctx, r.lead)
	}()
	r.t.Cleanup(func() {
		stop()
		<-ended
	})
	synctest.Wait()
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

// end stops the replica and returns how long that took. Run must return no error.
func (r *replica) end() time.Duration {
	r.t.Helper()
	began := time.Now()
	r.stop()
	if err := <-r.result; err != nil {
		r.t.Errorf("%s: Run returned %v", r.Identity(), err)
	}
	return time.Since(began)
}

// beginFollow calls Follow until stop is called.
func (r *replica) beginFollow() (stop func()) {
	ctx, cancel := context.WithCancel(r.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Follow(ctx) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			r.t.Errorf("%s: Follow returned %v", r.Identity(), err)
		}
	}
}

// oneReplica starts replica a, which leads.
func oneReplica(t *testing.T, change ...func(*Options)) (*fakelock.Store, *replica) {
	s := fakelock.NewStore()
	a := newReplica(t, newLock(s, "lease", "a"), change...).start()
	requireLeader(t, a)
	return s, a
}

// twoReplicas starts replicas a and b, of which a leads.
func twoReplicas(t *testing.T, change ...func(*Options)) (s *fakelock.Store, a, b *replica) {
	s, a = oneReplica(t, change...)
	b = newReplica(t, newLock(s, "lease", "b"), change...).start()
	requireStandby(t, b)
	return s, a, b
}

func requireLeader(t *testing.T, r *replica) {
	t.Helper()
	if l := r.Leader(); !r.Leading() || l.Identity != r.Identity() {
		t.Fatalf("%s leads: %t, and its leader is %q", r.Identity(), r.Leading(), l.Identity)
	}
}

func requireStandby(t *testing.T, replicas ...*replica) {
	t.Helper()
	for _, r := range replicas {
		if r.Leading() {
			t.Fatalf("%s leads", r.Identity())
		}
	}
}

// requireSteady requires one leader for some time.
func requireSteady(t *testing.T, d time.Duration, leader *replica, standbys ...*replica) {
	t.Helper()
	const step = 100 * time.Millisecond
	for range d / step {
		elapse(step)
		requireLeader(t, leader)
		requireStandby(t, standbys...)
	}
}

// requireLost requires that a term has ended with the loss of the Lease.
func requireLost(t *testing.T, term context.Context) {
	t.Helper()
	if cause := context.Cause(term); !errors.Is(cause, ErrLeaseLost) {
		t.Errorf("the cause is %v, want %v", cause, ErrLeaseLost)
	}
}

func requireHolder(t *testing.T, s *fakelock.Store, want string) {
	t.Helper()
	if holder := s.Holder("lease"); holder != want {
		t.Fatalf("the Lease is held by %q, want %q", holder, want)
	}
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
