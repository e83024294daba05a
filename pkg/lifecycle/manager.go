package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"k8s.io/klog/v2"

	"github.com/eventd/eventd/pkg/election"
)

// Causes of the end of a component's context, besides election.ErrLeaseLost.
var (
	errStopped = errors.New("the process stops")
	errElected = errors.New("elected again")
)

// Manager runs the components of one process.
//
// Start: the components that run everywhere start in order, each when the one
// before is ready. Then the election begins. At each election, the components that
// need leadership start in order.
//
// Lost Lease: the components that need leadership are cancelled together. When they
// have ended, they drain, the last one first, until the next election or the end of
// DrainGracePeriod.
//
// Stop, when the context of Run ends or a component fails:
//
//  1. The components that need leadership end, the last one first. If the Lease is
//     lost meanwhile, the rest is cancelled together.
//  2. The Lease is released, and followed from then on. It is left to expire if a
//     component that needs leadership has not ended.
//  3. They drain, the last one first.
//  4. The others end, the last one first.
type Manager struct {
	options    Options
	everywhere []Component
	leading    []Component
	running    atomic.Bool

	// The fields below belong to the goroutine that leads, and to Run when none does.

	begun    []string // leader components that have run, and may have something to drain
	stuck    []string // leader components that have not ended
	draining *drain   // after a lost Lease; nil if none
	// late contains abandoned drains by component: a channel that is closed when the
	// drain has returned.
	late map[string]<-chan struct{}
}

// New returns a Manager. It starts nothing before Run.
func New(o Options) (*Manager, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("lifecycle options: %w", err)
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

// Run runs the components until ctx ends, one of them fails, or the Elector ends.
// Then it stops all of them in order. It returns what failed, and what has not
// ended in time. It can be called once.
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
	err = errors.Join(err, m.drainAtStop(ctx))
	_, stopErr := everywhere.stop(errStopped, m.options.StopGracePeriod, nil)
	return errors.Join(err, stopErr)
}

func (m *Manager) elect(ctx context.Context) error {
	if m.options.Elector == nil {
		return m.lead(ctx)
	}
	return m.options.Elector.Run(ctx, m.lead)
}

// follow follows the Lease until stop is called, so that components know the next
// leader while they drain and stop.
func (m *Manager) follow(ctx context.Context) (stop func()) {
	if m.options.Elector == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := m.options.Elector.Follow(ctx); err != nil {
			klog.FromContext(ctx).Error(err, "Could not follow the lease")
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// lead runs the components that need leadership for one term.
func (m *Manager) lead(ctx context.Context) error {
	if err := m.endDrain(errElected); err != nil {
		return err
	}
	g := newGroup(ctx)
	g.start(ctx, m.leading)
	for _, r := range g.running {
		if !slices.Contains(m.begun, r.Name) {
			m.begun = append(m.begun, r.Name)
		}
	}
	g.wait(ctx)
	cause := errStopped
	if ctx.Err() != nil {
		cause = context.Cause(ctx)
	}
	var err error
	m.stuck, err = g.stop(cause, m.options.StopGracePeriod, election.Lost(ctx))
	if err == nil && errors.Is(cause, election.ErrLeaseLost) {
		m.beginDrain(ctx)
	}
	return err
}
