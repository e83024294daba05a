package election

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// calls makes the calls to a lock, one at a time, because a lock need not be safe
// for concurrent use. A call may take the request timeout, or half of the caller's
// remaining time if that is less: a hanging call must leave a leader the time for
// another one. A call that ignores its context is abandoned. Later calls fail until
// it has returned.
type calls struct {
	lock    resourcelock.Interface
	timeout time.Duration
	busy    chan struct{} // contains one element during a call
}

// answer is the result of a call.
type answer struct {
	record    *resourcelock.LeaderElectionRecord // of get
	raw       []byte                             // of get
	named     bool                               // of get: this process holds the lock
	announced Announcement
	err       error
}

func (c *calls) get(ctx context.Context) answer {
	return c.do(ctx, func(ctx context.Context) (a answer) {
		a.record, a.raw, a.err = c.lock.Get(ctx)
		a.named = a.err == nil && a.record.HolderIdentity == c.lock.Identity()
		return a
	})
}

func (c *calls) create(ctx context.Context, record resourcelock.LeaderElectionRecord) answer {
	return c.do(ctx, func(ctx context.Context) answer { return answer{err: c.lock.Create(ctx, record)} })
}

func (c *calls) update(ctx context.Context, record resourcelock.LeaderElectionRecord) answer {
	return c.do(ctx, func(ctx context.Context) answer { return answer{err: c.lock.Update(ctx, record)} })
}

// eventTimeout is how long recordEvent waits for the end of an earlier call.
const eventTimeout = 100 * time.Millisecond

// recordEvent records an Event about this process through the lock.
func (c *calls) recordEvent(ctx context.Context, event string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), eventTimeout)
	defer cancel()
	c.do(ctx, func(context.Context) answer {
		c.lock.RecordEvent(event)
		return answer{}
	})
}

func (c *calls) do(ctx context.Context, call func(context.Context) answer) answer {
	timeout := c.timeoutWithin(ctx)
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

// minTimeout is the minimum timeout of a call, even if its caller has less time.
const minTimeout = 250 * time.Millisecond

// timeoutWithin returns the timeout of a call whose caller has ctx.
func (c *calls) timeoutWithin(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return c.timeout
	}
	return min(c.timeout, max(time.Until(deadline)/2, minTimeout))
}

// wait returns nil when no call is in flight, or the cause of the end of ctx.
func (c *calls) wait(ctx context.Context) error {
	select {
	case c.busy <- struct{}{}:
		<-c.busy
		return nil
	case <-ctx.Done():
		if len(c.busy) == 0 {
			return nil // both cases were ready
		}
		return context.Cause(ctx)
	}
}
