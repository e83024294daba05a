package lifecycle

import (
	"context"
	"errors"
	"fmt"

	"github.com/eventd/eventd/pkg/election"
)

// Component is a part of a process. A Manager calls its functions, each in a
// goroutine of its own. They must return soon after their context ends.
type Component struct {
	// Name identifies the component in errors. It is unique.
	Name string
	// NeedsLeadership is true for a component that runs on the leader only.
	NeedsLeadership bool
	// Run works until ctx ends, then stops accepting, finishes what is in flight and
	// returns nil. An error other than that of ctx stops the process. nil before ctx
	// ends means that there is nothing more to do. Once Run of a component that needs
	// leadership has returned, it is called again at the next election.
	Run func(ctx context.Context) error
	// Ready is optional. It returns nil when the component works, and an error if it
	// will not. The next component is started then.
	Ready func(ctx context.Context) error
	// Drain is optional, for a component that needs leadership. After the Lease was
	// released or lost, it processes what is left until ctx ends. Another replica may
	// lead meanwhile. It may be called several times, but never while Run runs.
	Drain func(ctx context.Context) error
}

// errGoroutineEnded is the error of a component that calls runtime.Goexit.
var errGoroutineEnded = errors.New("has ended its goroutine")

// running is a component whose Run was called.
type running struct {
	Component
	cancel context.CancelCauseFunc
	alive  context.Context // ends when Run has returned
	err    error           // result of Run, valid after alive has ended
}

// run calls Run of a component in a goroutine. A failure is passed to fail.
func run(values context.Context, c Component, fail func(error)) *running {
	r := &running{Component: c}
	ctx, cancel := context.WithCancelCause(values)
	alive, ended := context.WithCancel(values)
	r.cancel, r.alive = cancel, alive
	go func() {
		defer ended()
		err := errGoroutineEnded // unless Run returns
		defer func() {
			if err := ignoreCancellation(ctx, err); err != nil {
				r.err = fmt.Errorf("component %q: %w", c.Name, err)
				fail(r.err)
			}
		}()
		err = c.Run(ctx)
	}()
	return r
}

// ignoreCancellation returns nil for an error that only reports the end of ctx.
func ignoreCancellation(ctx context.Context, err error) error {
	if ctx.Err() != nil && !errors.Is(err, election.ErrNotStopped) && (errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx))) {
		return nil
	}
	return err
}

// waitReady returns an error if the component will not be ready, or has ended
// before. A stop during the wait is no error.
func (r *running) waitReady(ctx, failing context.Context) error {
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
