package election

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"
)

// Causes of the end of a component's context, other than ErrLeaseLost.
var (
	errStopped = errors.New("the process stops")
	errElected = errors.New("elected again")
)

// ManagerOptions are what a Manager needs. Begin with DefaultManagerOptions.
type ManagerOptions struct {
	// Components are started in this order.
	Components []Component
	// Elector says when to lead. nil is a process that runs alone: it leads from
	// start to stop.
	Elector Candidate
	// StopGracePeriod is how long the components that need leadership have to
	// stop, all together, and after them those that do not.
	StopGracePeriod time.Duration
	// DrainGracePeriod is how long components may drain, all together.
	DrainGracePeriod time.Duration
}

// Candidate takes part in an election, and then knows who leads. An *Elector is
// one.
type Candidate interface {
	Run(ctx context.Context, lead func(context.Context) error) error
	Follow(ctx context.Context) error
}

// DefaultManagerOptions returns periods that, together with the release of the
// Lease, fit into the 30 seconds that a Pod has to end by default.
func DefaultManagerOptions() ManagerOptions {
	return ManagerOptions{StopGracePeriod: 5 * time.Second, DrainGracePeriod: 10 * time.Second}
}

// Validate says what is wrong with the options, or nil.
func (o *ManagerOptions) Validate() error {
	errs := []error{validate(o.Components)}
	if o.StopGracePeriod <= 0 {
		errs = append(errs, fmt.Errorf("the stop grace period must be greater than 0, not %s", o.StopGracePeriod))
	}
	if o.DrainGracePeriod <= 0 {
		errs = append(errs, fmt.Errorf("the drain grace period must be greater than 0, not %s", o.DrainGracePeriod))
	}
	return errors.Join(errs...)
}

// Manager runs the components of one process.
//
// Start: those that run everywhere, in order, each when the one before is ready.
// Then the election begins. At each election those that need leadership start,
// in order.
//
// When the Lease is lost, those that need leadership are all told at once. When
// they have ended they drain, the last one first, until the next election or the
// end of DrainGracePeriod, while the process stands by.
//
// Stop, when the context of Run is over or a component has failed: those that
// need leadership are told and end, one after the other, the last one first; the
// Lease is released, and from then on followed; they drain, in the same order;
// those that run everywhere end, the last one first. No leader work begins
// meanwhile. What takes more time than it has is named in the error, and left
// behind. If it is leader work, the Lease is not released, but left to expire. If
// the Lease is lost before that work has ended, the rest of it is told at once.
type Manager struct {
	options    ManagerOptions
	everywhere []Component
	leading    []Component
	running    atomic.Bool

	// What follows belongs to the goroutine that leads, and to Run when nobody
	// does.

	begun    []string // leader components that have run, and may have something to drain
	stuck    []string // leader components that have not ended
	draining *drainer // after a lost Lease; nil if none
	// late has the drains that were left behind, by component: closed when it has
	// returned. A drain that goes on while the process stands by adds to it.
	late map[string]<-chan struct{}
}

// drainer is a drain that goes on while the process stands by.
type drainer struct {
	cancel context.CancelCauseFunc
	done   chan struct{}
}

// NewManager returns a Manager that starts nothing before Run.
func NewManager(o ManagerOptions) (*Manager, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("manager options: %w", err)
	}
	m := &Manager{options: o, late: map[string]<-chan struct{}{}}
	for _, c := range o.Components {
		if c.NeedsLeadership {
			m.leading = append(m.leading, c)
		} else {
			m.everywhere = append(m.everywhere, c)
		}
	}
	return m, nil
}

// Run runs the components until ctx is over, one of them fails, or the Elector
// ends, and stops all in order. It returns what failed, and what has not ended in
// time. It can be called once.
func (m *Manager) Run(ctx context.Context) error {
	if !m.running.CompareAndSwap(false, true) {
		return errors.New("the manager has run already")
	}
	everywhere := newGroup(ctx)
	running, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(everywhere.failing, func() { stop(errStopped) })()

	everywhere.start(running, m.everywhere)
	var err error
	if running.Err() == nil && everywhere.failing.Err() == nil {
		err = m.elect(running)
		defer m.follow(ctx)()
	}
	err = errors.Join(err, m.drainAll(ctx))
	_, stopErr := everywhere.stop(errStopped, m.options.StopGracePeriod, nil)
	return errors.Join(err, stopErr)
}

func (m *Manager) elect(ctx context.Context) error {
	if m.options.Elector == nil {
		return m.lead(ctx)
	}
	return m.options.Elector.Run(ctx, m.lead)
}

// follow has the Lease followed until what it returns is called.
func (m *Manager) follow(ctx context.Context) (stop func()) {
	if m.options.Elector == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := m.options.Elector.Follow(ctx); err != nil {
			klog.FromContext(ctx).Error(err, "The lease is not followed")
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// lead is one term.
func (m *Manager) lead(ctx context.Context) error {
	if err := m.endDrain(errElected); err != nil {
		return err
	}
	g := newGroup(ctx)
	g.start(ctx, m.leading)
	m.note(g)
	g.wait(ctx)
	cause := errStopped
	if ctx.Err() != nil {
		cause = context.Cause(ctx)
	}
	var err error
	m.stuck, err = g.stop(cause, m.options.StopGracePeriod, lostTo(ctx))
	if err == nil && errors.Is(cause, ErrLeaseLost) {
		m.beginDrain(ctx)
	}
	return err
}

// note notes which components have run.
func (m *Manager) note(g *group) {
	for _, r := range g.running {
		if !slices.Contains(m.begun, r.Name) {
			m.begun = append(m.begun, r.Name)
		}
	}
}

// beginDrain drains while the process stands by.
func (m *Manager) beginDrain(ctx context.Context) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	d := &drainer{cancel: cancel, done: make(chan struct{})}
	m.draining = d
	go func() {
		defer close(d.done)
		if err := m.drain(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Not everything that was left over is done")
		}
	}()
}

// endDrain ends what beginDrain has begun, if it has not ended by itself. An error
// names the components whose Drain was left behind and has not returned since.
func (m *Manager) endDrain(cause error) error {
	d := m.draining
	if d == nil {
		return nil
	}
	m.draining = nil
	d.cancel(cause)
	<-d.done
	var errs []error
	for _, c := range slices.Backward(m.leading) {
		if m.drainsStill(c) {
			errs = append(errs, notDrained(c, ErrNotStopped))
		}
	}
	return errors.Join(errs...)
}

// drainsStill tells whether a Drain of the component was left behind, and goes on.
func (m *Manager) drainsStill(c Component) bool {
	returned := m.late[c.Name]
	if returned == nil {
		return false
	}
	select {
	case <-returned:
		return false
	default:
		return true
	}
}

func notDrained(c Component, err error) error {
	return fmt.Errorf("draining component %q: %w", c.Name, err)
}

// drainAll is the drain at the end of the process.
func (m *Manager) drainAll(ctx context.Context) error {
	err := m.endDrain(errStopped)
	return errors.Join(err, m.drain(context.WithoutCancel(ctx)))
}

// drain has the components that have run, and have ended, drain, the last one
// first. One whose last Drain goes on has not ended.
func (m *Manager) drain(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, m.options.DrainGracePeriod)
	defer cancel()
	var errs []error
	for _, c := range slices.Backward(m.leading) {
		if c.Drain == nil || !slices.Contains(m.begun, c.Name) || slices.Contains(m.stuck, c.Name) || m.drainsStill(c) {
			continue
		}
		if err := m.drainOne(ctx, c); err != nil {
			errs = append(errs, notDrained(c, err))
		}
	}
	return errors.Join(errs...)
}

// drainOne leaves behind a drain that goes on for a moment after it should not.
func (m *Manager) drainOne(ctx context.Context, c Component) error {
	err := errGoroutineEnded // unless Drain returns
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		err = c.Drain(ctx)
	}()
	select {
	case <-returned:
		return err
	case <-ctx.Done():
	}
	select {
	case <-returned:
		return err
	case <-time.After(lastMoment):
		m.late[c.Name] = returned
		return ErrNotStopped
	}
}
