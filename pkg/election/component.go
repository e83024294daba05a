package election

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Component is a part of a process that a Manager runs. Its functions are called
// by goroutines of the Manager's; they must end soon after their context does.
type Component struct {
	// Name is what it is called in errors. No two are called the same.
	Name string
	// NeedsLeadership is whether it runs on the leader only.
	NeedsLeadership bool
	// Run works until its context is over, then stops accepting, finishes what
	// is in flight, and returns nil. An error that is not only that of its
	// context stops the process; nil before the context is over means that there
	// is nothing more to do. That of a component that needs leadership is called
	// again at the next election, when it has returned.
	Run func(ctx context.Context) error
	// Ready, if not nil, returns when the component has begun to work, with an
	// error if it will not. The next one is started then.
	Ready func(ctx context.Context) error
	// Drain, if not nil, goes on with what is left over when the Lease is
	// released or lost, until its context is over. What it does must be right
	// whoever leads meanwhile. It is for components that need leadership, may be
	// called any number of times, and never while Run runs.
	Drain func(ctx context.Context) error
}

func validate(components []Component) error {
	var errs []error
	names := make(map[string]bool)
	for _, c := range components {
		switch {
		case c.Name == "":
			errs = append(errs, errors.New("a component has no name"))
		case names[c.Name]:
			errs = append(errs, fmt.Errorf("two components are called %q", c.Name))
		}
		names[c.Name] = true
		if c.Run == nil {
			errs = append(errs, fmt.Errorf("component %q has nothing to run", c.Name))
		}
		if c.Drain != nil && !c.NeedsLeadership {
			errs = append(errs, fmt.Errorf("component %q is to drain, but does not need leadership", c.Name))
		}
	}
	return errors.Join(errs...)
}

// errGoroutineEnded is of a component that runtime.Goexit was called in.
var errGoroutineEnded = errors.New("has ended its goroutine")

// lastMoment is how long components that were told late, because others took all
// the time, have to end.
const lastMoment = time.Second

// group is the components that run together: started in order, stopped in
// reverse. It belongs to one goroutine.
type group struct {
	values  context.Context // of the components' contexts
	running []*running
	// failing is over when a component has failed.
	failing context.Context
	fail    context.CancelCauseFunc
}

type running struct {
	Component
	cancel context.CancelCauseFunc
	alive  context.Context // over when Run has returned
	err    error           // what it returned then
}

func newGroup(ctx context.Context) *group {
	g := &group{values: context.WithoutCancel(ctx)}
	g.failing, g.fail = context.WithCancelCause(g.values)
	return g
}

// start starts components in order until one fails or the context is over.
// Failures are returned by stop.
func (g *group) start(ctx context.Context, components []Component) {
	for _, c := range components {
		if ctx.Err() != nil || g.failing.Err() != nil {
			return
		}
		r := g.run(c)
		if err := r.awaitReady(ctx, g.failing); err != nil {
			g.fail(err)
			return
		}
	}
}

func (g *group) run(c Component) *running {
	r := &running{Component: c}
	ctx, cancel := context.WithCancelCause(g.values)
	alive, ended := context.WithCancel(g.values)
	r.cancel, r.alive = cancel, alive
	g.running = append(g.running, r)
	go func() {
		defer ended()
		err := errGoroutineEnded // unless Run returns
		defer func() {
			if err := unlessTold(ctx, err); err != nil {
				r.err = fmt.Errorf("component %q: %w", c.Name, err)
				g.fail(r.err)
			}
		}()
		err = c.Run(ctx)
	}()
	return r
}

// awaitReady returns an error if the component says that it will not be ready,
// or has ended before. That it is to stop is none.
func (r *running) awaitReady(ctx, failing context.Context) error {
	if r.Ready == nil {
		return nil
	}
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, over := range []context.Context{failing, r.alive} {
		defer context.AfterFunc(over, cancel)()
	}
	switch err := r.Ready(waiting); {
	case err == nil, ctx.Err() != nil, failing.Err() != nil:
		return nil
	case r.alive.Err() != nil:
		return fmt.Errorf("component %q has ended before it was ready", r.Name)
	default:
		return fmt.Errorf("component %q is not ready: %w", r.Name, err)
	}
}

// wait returns when the context is over or a component has failed.
func (g *group) wait(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-g.failing.Done():
	}
}

// stop tells the components to stop, the last one first, and the one before when
// that has ended. When time is up, or as soon as the Lease is lost, all are told
// at once. It returns the errors of all, and those that have not ended by name.
func (g *group) stop(cause error, grace time.Duration, lost <-chan struct{}) (stuck []string, err error) {
	defer g.fail(nil)
	ctx, cancel := context.WithTimeout(g.values, grace)
	defer cancel()
	if errors.Is(cause, ErrLeaseLost) {
		g.tellAll(cause)
	}
	for _, r := range slices.Backward(g.running) {
		r.cancel(cause)
		for r.alive.Err() == nil {
			select {
			case <-r.alive.Done():
			case <-lost:
				g.tellAll(ErrLeaseLost)
				lost = nil
			case <-ctx.Done():
				g.tellAll(cause)
				return g.collect()
			}
		}
	}
	return g.collect()
}

func (g *group) tellAll(cause error) {
	for _, r := range slices.Backward(g.running) {
		r.cancel(cause)
	}
}

// collect waits for a last moment for those that have not ended.
func (g *group) collect() (stuck []string, err error) {
	ctx, cancel := context.WithTimeout(g.values, lastMoment)
	defer cancel()
	errs := []error{context.Cause(g.failing)}
	for _, r := range slices.Backward(g.running) {
		select {
		case <-r.alive.Done():
		case <-ctx.Done(): // for one before it, maybe
		}
		switch {
		case r.alive.Err() == nil:
			stuck = append(stuck, r.Name)
			errs = append(errs, fmt.Errorf("component %q %w", r.Name, ErrNotStopped))
		case r.err != nil && !errors.Is(errs[0], r.err):
			errs = append(errs, r.err)
		}
	}
	return stuck, errors.Join(errs...)
}
