package lifecycle

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/eventd/eventd/pkg/election"
	"github.com/eventd/eventd/test/fakelock"
)

// journal is what happened, in order.
type journal struct {
	mu      sync.Mutex
	entries []string
}

func (j *journal) note(entry ...string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entries = append(j.entries, strings.Join(entry, " "))
}

// next returns the entries since its last call.
func (j *journal) next() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	entries := j.entries
	j.entries = nil
	return entries
}

func (j *journal) require(t *testing.T, want ...string) {
	t.Helper()
	if got := j.next(); !slices.Equal(got, want) {
		t.Errorf("happened: %q\nwant: %q", got, want)
	}
}

// everywhere returns a component that works until it is cancelled.
func (j *journal) everywhere(name string) Component {
	begun := make(chan struct{}, 1)
	return Component{
		Name: name,
		Run: func(ctx context.Context) error {
			j.note(name, "runs")
			begun <- struct{}{}
			<-ctx.Done()
			j.note(name, "is cancelled")
			time.Sleep(time.Millisecond)
			j.note(name, "ends")
			return ctx.Err()
		},
		Ready: func(ctx context.Context) error {
			select {
			case <-begun:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		},
	}
}

// leading returns one that needs leadership, and drains.
func (j *journal) leading(name string) Component {
	c := j.everywhere(name)
	c.NeedsLeadership = true
	c.Drain = func(context.Context) error {
		j.note(name, "drains")
		return nil
	}
	return c
}

// ready makes a component ready after a while.
func (j *journal) ready(c Component, after time.Duration) Component {
	begun := c.Ready
	c.Ready = func(ctx context.Context) error {
		if err := begun(ctx); err != nil {
			return err
		}
		select {
		case <-time.After(after):
			j.note(c.Name, "is ready")
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return c
}

// managed is a Manager that runs.
type managed struct {
	t      *testing.T
	stop   context.CancelFunc
	result chan error
}

func manage(t *testing.T, o Options) *managed {
	t.Helper()
	m, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	r := &managed{t: t, result: make(chan error, 1)}
	var ctx context.Context
	ctx, r.stop = context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.result <- m.Run(ctx)
	}()
	t.Cleanup(func() {
		r.stop()
		<-done
	})
	return r
}

func (r *managed) end() error {
	r.stop()
	return <-r.result
}

func options(components ...Component) Options {
	o := DefaultOptions()
	o.Components = components
	return o
}

// with adds an elector, and notes when its Lease is released.
func with(t *testing.T, j *journal, o Options) (Options, *fakelock.Lock) {
	lock := fakelock.New(fakelock.NewStore(), "lease", "a")
	lock.Intercept(noteRelease(j, lock))
	o.Elector = newElector(t, lock, election.StandBy)
	return o, lock
}

// noteRelease notes when the Lease is released.
func noteRelease(j *journal, lock *fakelock.Lock) fakelock.Interceptor {
	return func(_ context.Context, op fakelock.Operation, send func() error) error {
		err := send()
		if op == fakelock.Update && err == nil && lock.Holder() == "" {
			j.note("released")
		}
		return err
	}
}

func newElector(t *testing.T, lock resourcelock.Interface, onLost election.OnLost) *election.Elector {
	t.Helper()
	o := election.DefaultOptions()
	o.Lock, o.OnLost = lock, onLost
	e, err := election.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// elapse lets time pass, and everything that happens in it.
func elapse(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}
