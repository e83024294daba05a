package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/eventd/eventd/pkg/election"
)

// lateStopTimeout is how long components may take to end after a grace period.
// Others may have used up all of it, so that some are cancelled at its end.
const lateStopTimeout = time.Second

// group is the components that run together. They start in order and stop in
// reverse. It belongs to one goroutine.
type group struct {
	values  context.Context // parent of the components' contexts, without their cancellation
	running []*running
	// failing ends when a component has failed. Its cause is the failure.
	failing context.Context
	fail    context.CancelCauseFunc
}

func newGroup(ctx context.Context) *group {
	g := &group{values: context.WithoutCancel(ctx)}
	g.failing, g.fail = context.WithCancelCause(g.values)
	return g
}

// start starts components in order until one fails or ctx ends. stop returns the
// failure.
func (g *group) start(ctx context.Context, components []Component) {
	for _, c := range components {
		if ctx.Err() != nil || g.failing.Err() != nil {
			return
		}
		r := run(g.values, c, g.fail)
		g.running = append(g.running, r)
		if err := r.waitReady(ctx, g.failing); err != nil {
			g.fail(err)
			return
		}
	}
}

// wait returns when ctx ends or a component has failed.
func (g *group) wait(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-g.failing.Done():
	}
}

// stop cancels the components, the last one first, each when the one after it has
// ended. At the end of the grace period, or when the Lease is lost, it cancels all.
// It returns the errors of all, and the names of those that have not ended.
func (g *group) stop(cause error, grace time.Duration, lost <-chan struct{}) (stuck []string, err error) {
	defer g.fail(nil)
	ctx, cancel := context.WithTimeout(g.values, grace)
	defer cancel()
	if errors.Is(cause, election.ErrLeaseLost) {
		g.cancelAll(cause)
	}
	for _, r := range slices.Backward(g.running) {
		r.cancel(cause)
		for r.alive.Err() == nil {
			select {
			case <-r.alive.Done():
			case <-lost:
				g.cancelAll(election.ErrLeaseLost)
				lost = nil
			case <-ctx.Done():
				g.cancelAll(cause)
				return g.collect()
			}
		}
	}
	return g.collect()
}

func (g *group) cancelAll(cause error) {
	for _, r := range slices.Backward(g.running) {
		r.cancel(cause)
	}
}

// collect waits up to lateStopTimeout for components that have not ended.
func (g *group) collect() (stuck []string, err error) {
	ctx, cancel := context.WithTimeout(g.values, lateStopTimeout)
	defer cancel()
	errs := []error{context.Cause(g.failing)}
	for _, r := range slices.Backward(g.running) {
		select {
		case <-r.alive.Done():
		case <-ctx.Done(): // an earlier one may have used up the time
		}
		switch {
		case r.alive.Err() == nil:
			stuck = append(stuck, r.Name)
			errs = append(errs, fmt.Errorf("component %q %w", r.Name, election.ErrNotStopped))
		case r.err != nil && !errors.Is(errs[0], r.err):
			errs = append(errs, r.err)
		}
	}
	return stuck, errors.Join(errs...)
}
