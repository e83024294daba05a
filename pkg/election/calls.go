package election

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// calls makes the calls to a lock: one at a time, since a lock need not be safe
// for use by several goroutines, and for no longer than they may take, which is
// half of what is left to the caller if that is less: one that hangs until the
// caller has no time for another would cost a leader its Lease. A call
// that ignores its context is left behind, and those after it fail until it has
// returned.
type calls struct {
	lock    resourcelock.Interface
	timeout time.Duration
	busy    chan struct{} // holds one element during a call
}

func newCalls(lock resourcelock.Interface, timeout time.Duration) *calls {
	return &calls{lock: lock, timeout: timeout, busy: make(chan struct{}, 1)}
}

// answer is what a lock answered.
type answer struct {
	record    *resourcelock.LeaderElectionRecord // of a get
	raw       []byte                             // of a get
	named     bool                               // of a get: this process holds the lock, or a part of it
	announced Announcement
	err       error
}

func (c *calls) get(ctx context.Context) answer {
	return c.do(ctx, func(ctx context.Context) (a answer) {
		a.record, a.raw, a.err = c.lock.Get(ctx)
		a.named = a.err == nil && names(c.lock, a.record)
		return a
	})
}

func (c *calls) create(ctx context.Context, record resourcelock.LeaderElectionRecord) answer {
	return c.do(ctx, func(ctx context.Context) answer { return answer{err: c.lock.Create(ctx, record)} })
}

func (c *calls) update(ctx context.Context, record resourcelock.LeaderElectionRecord) answer {
	return c.do(ctx, func(ctx context.Context) answer { return answer{err: c.lock.Update(ctx, record)} })
}

// release is update with a record that has no holder: of two locks it clears only
// what names this process.
func (c *calls) release(ctx context.Context, record resourcelock.LeaderElectionRecord) answer {
	write := c.lock.Update
	if l, ok := c.lock.(*MultiLock); ok {
		write = l.release
	}
	return c.do(ctx, func(ctx context.Context) answer { return answer{err: write(ctx, record)} })
}

// eventTimeout is how long recording an event, which does not block, may wait
// for the end of an earlier call.
const eventTimeout = 100 * time.Millisecond

// recordEvent has the lock report what has become of this process.
func (c *calls) recordEvent(ctx context.Context, event string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), eventTimeout)
	defer cancel()
	c.do(ctx, func(context.Context) answer {
		c.lock.RecordEvent(event)
		return answer{}
	})
}

func (c *calls) do(ctx context.Context, call func(context.Context) answer) answer {
	timeout := c.limit(ctx)
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %s", timeout))
	defer cancel()
	select {
	case c.busy <- struct{}{}:
	case <-ctx.Done():
		return answer{err: fmt.Errorf("waiting for the end of an earlier call to the lock: %w", context.Cause(ctx))}
	}
	answered := make(chan answer, 1)
	go func() {
		a := call(ctx)
		if a.err == nil {
			a.announced = announced(c.lock)
		}
		<-c.busy
		answered <- a
	}()
	select {
	case a := <-answered:
		return a
	case <-ctx.Done():
		return answer{err: context.Cause(ctx)}
	}
}

// shortestLimit is what a call may take however little is left to its caller, who
// may have less.
const shortestLimit = 250 * time.Millisecond

// limit is how long a call may take.
func (c *calls) limit(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return c.timeout
	}
	return min(c.timeout, max(time.Until(deadline)/2, shortestLimit))
}

// wait returns when no call is being made, or the context is over; then there
// may still be one.
func (c *calls) wait(ctx context.Context) error {
	select {
	case c.busy <- struct{}{}:
		<-c.busy
		return nil
	case <-ctx.Done():
		if len(c.busy) == 0 {
			return nil // both were ready
		}
		return context.Cause(ctx)
	}
}
