package lifecycle

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/eventd/eventd/pkg/election"
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

// byLeadership are the two kinds of components.
var byLeadership = map[string]bool{"everywhere": false, "needs leadership": true}

// elapse lets time pass, and everything that happens in it.
func elapse(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// untilCancelled is a Run or a Ready.
func untilCancelled(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// process is a Manager that runs, its Lease, and a journal of what happened.
type process struct {
	t      *testing.T
	lock   *fakelock.Lock
	stop   context.CancelFunc
	result chan error

	mu      sync.Mutex
	entries []string
}

func newProcess(t *testing.T) *process {
	p := &process{t: t, lock: fakelock.New(fakelock.NewStore(), "lease", "a"), result: make(chan error, 1)}
	p.lock.Intercept(p.noteRelease)
	return p
}

// bubble runs a test of one process in a bubble.
func bubble(t *testing.T, test func(t *testing.T, p *process)) {
	synctest.Test(t, func(t *testing.T) { test(t, newProcess(t)) })
}

func (p *process) note(entry ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.entries = append(p.entries, strings.Join(entry, " "))
}

// next returns the entries since its last call.
func (p *process) next() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	entries := p.entries
	p.entries = nil
	return entries
}

func (p *process) require(want ...string) {
	p.t.Helper()
	if got := p.next(); !slices.Equal(got, want) {
		p.t.Errorf("happened: %q\nwant: %q", got, want)
	}
}

// everywhere returns a component that works until it is cancelled.
func (p *process) everywhere(name string) Component {
	begun := make(chan struct{}, 1)
	return Component{
		Name: name,
		Run: func(ctx context.Context) error {
			p.note(name, "runs")
			begun <- struct{}{}
			<-ctx.Done()
			p.note(name, "is cancelled")
			time.Sleep(time.Millisecond)
			p.note(name, "ends")
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
func (p *process) leading(name string) Component {
	c := p.everywhere(name)
	c.NeedsLeadership = true
	c.Drain = func(context.Context) error {
		p.note(name, "drains")
		return nil
	}
	return c
}

// stubborn returns one whose Drain ignores its context.
func (p *process) stubborn(release <-chan struct{}) Component {
	c := p.leading("stubborn")
	c.Drain = func(context.Context) error {
		p.note("stubborn drains")
		<-release
		p.note("stubborn has drained")
		return nil
	}
	return c
}

// ready makes a component ready after a while.
func (p *process) ready(c Component, after time.Duration) Component {
	begun := c.Ready
	c.Ready = func(ctx context.Context) error {
		if err := begun(ctx); err != nil {
			return err
		}
		select {
		case <-time.After(after):
			p.note(c.Name, "is ready")
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return c
}

func options(components ...Component) Options {
	o := DefaultOptions()
	o.Components = components
	return o
}

// elected adds an elector.
func (p *process) elected(o Options) Options {
	o.Elector = newElector(p.t, p.lock, election.StandBy)
	return o
}

// run runs a Manager, and returns after what it does at once.
func (p *process) run(o Options) {
	p.t.Helper()
	manager, err := New(o)
	if err != nil {
		p.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(p.t.Context()))
	p.stop = stop
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.result <- manager.Run(ctx)
	}()
	p.t.Cleanup(func() {
		stop()
		<-done
	})
	synctest.Wait()
}

// end stops the Manager, which must return no error.
func (p *process) end() {
	p.t.Helper()
	p.stop()
	if err := <-p.result; err != nil {
		p.t.Errorf("the end is %v", err)
	}
}

// noteRelease notes when the Lease is released.
func (p *process) noteRelease(_ context.Context, op fakelock.Operation, send func() error) error {
	err := send()
	if op == fakelock.Update && err == nil && p.lock.Holder() == "" {
		p.note("released")
	}
	return err
}

// lose makes all requests about the Lease fail for some time.
func (p *process) lose(d time.Duration) {
	p.lock.Intercept(fakelock.Fail)
	elapse(d)
}

// recover ends lose, and returns when the Lease is held again.
func (p *process) recover() {
	p.lock.Intercept(p.noteRelease)
	elapse(3 * time.Second)
}

func newElector(t *testing.T, lock *fakelock.Lock, onLost election.OnLost) *election.Elector {
	t.Helper()
	o := election.DefaultOptions()
	o.Lock, o.OnLost = lock, onLost
	e, err := election.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
