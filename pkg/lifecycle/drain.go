package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/klog/v2"

	"github.com/eventd/eventd/internal/grace"
	"github.com/eventd/eventd/pkg/election"
)

// drain is a drain that runs while the process stands by.
type drain struct {
	cancel context.CancelCauseFunc
	done   chan struct{}
}

// beginDrain drains while the process stands by.
func (m *Manager) beginDrain(ctx context.Context) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	d := &drain{cancel: cancel, done: make(chan struct{})}
	m.draining = d
	go func() {
		defer close(d.done)
		if err := m.drainAll(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Could not drain after the lease was lost")
		}
	}()
}

// endDrain ends what beginDrain has begun. Its error names the components whose
// Drain was abandoned and still runs.
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
		if m.isDraining(c) {
			errs = append(errs, drainError(c, election.ErrNotStopped))
		}
	}
	return errors.Join(errs...)
}

// isDraining reports whether a Drain of the component was abandoned and still runs.
func (m *Manager) isDraining(c Component) bool {
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

func drainError(c Component, err error) error {
	return fmt.Errorf("draining component %q: %w", c.Name, err)
}

// drainAtStop is the drain at the end of the process.
func (m *Manager) drainAtStop(ctx context.Context) error {
	err := m.endDrain(errStopped)
	return errors.Join(err, m.drainAll(context.WithoutCancel(ctx)))
}

// drainAll drains the components that have run and have ended, the last one first.
// It skips a component whose previous Drain still runs.
func (m *Manager) drainAll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, m.options.DrainGracePeriod)
	defer cancel()
	var errs []error
	for _, c := range slices.Backward(m.leading) {
		if c.Drain == nil || !slices.Contains(m.begun, c.Name) || slices.Contains(m.stuck, c.Name) || m.isDraining(c) {
			continue
		}
		if err := m.drainOne(ctx, c); err != nil {
			errs = append(errs, drainError(c, err))
		}
	}
	return errors.Join(errs...)
}

// drainOne abandons a Drain that runs for longer than lateStopTimeout after ctx.
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
	if !grace.WaitFor(lateStopTimeout, returned) {
		m.late[c.Name] = returned
		return election.ErrNotStopped
	}
	return err
}
