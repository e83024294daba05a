package election

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// heldBy is the error that the lock names another holder, or none.
type heldBy struct{ holder string }

func (e heldBy) Error() string {
	if e.holder == "" {
		return "the lease has no holder"
	}
	return fmt.Sprintf("the lease is held by %q", e.holder)
}

// hintPause is the minimum time between two hints that a leader reacts to. Its own
// renewals cause hints too, and a watch that hints without end must not use up the
// requests that renewals need.
const hintPause = 200 * time.Millisecond

// renewRetry is the minimum time between two attempts to renew.
const renewRetry = 100 * time.Millisecond

// renewUntil renews the Lease until working or the term ends. After a hint it reads
// the record, and so does not wait for the next renewal to notice a change.
func (e *Elector) renewUntil(working context.Context, t *term) {
	next := time.NewTimer(e.options.RetryPeriod)
	defer next.Stop()
	hints := e.hints
	var pause <-chan time.Time
	for t.leading() {
		select {
		case <-working.Done():
			return
		case <-t.ended:
			return
		case <-next.C:
			next.Reset(e.renew(working, t))
		case <-hints:
			if !e.checkHolder(working, t) {
				next.Reset(0)
			}
			hints, pause = nil, time.After(hintPause)
		case <-pause:
			hints = e.hints
		}
	}
}

// renew makes one attempt to renew the Lease. It returns the time until the next.
func (e *Elector) renew(working context.Context, t *term) (wait time.Duration) {
	ctx, cancel := context.WithTimeoutCause(working, t.remaining(), ErrLeaseLost)
	defer cancel()
	began := time.Now()
	start, err := e.tryRenew(ctx, t)
	switch {
	case err == nil:
		if t.extend(start) {
			e.metrics.renewal.Observe(time.Since(began).Seconds())
		}
		return e.options.RetryPeriod - time.Since(began)
	case working.Err() != nil || errors.As(err, new(heldBy)):
		// The work has returned, or the term has ended: this is no failed renewal.
	default:
		e.metrics.failures.Inc()
		e.logger(ctx).Info("Could not renew the lease", "err", err, "remaining", t.remaining())
	}
	// Retry sooner as the deadline approaches, so that an apiserver that is back
	// before the deadline is reached before it.
	return min(e.options.RetryPeriod, max(t.remaining()/4, renewRetry))
}

// tryRenew updates the record as last written or read. If that fails, the answer may
// be lost or the record changed: it reads the record, and writes again if that still
// names this process. It returns when the successful write began.
func (e *Elector) tryRenew(ctx context.Context, t *term) (moment, error) {
	if !e.unread {
		start, err := e.write(ctx, e.held, e.calls.update)
		if err == nil || ctx.Err() != nil {
			return start, err
		}
	}
	err := e.readHeld(ctx, t)
	switch {
	case isNotFound(err):
		// The Lease was deleted. Others wait until it would have expired, so this
		// process still leads and may create it again.
		return e.write(ctx, e.held, e.calls.create)
	case err != nil:
		return moment{}, err
	}
	return e.write(ctx, e.held, e.calls.update)
}

// checkHolder reports whether a read shows that this process still holds the Lease.
func (e *Elector) checkHolder(working context.Context, t *term) bool {
	ctx, cancel := context.WithTimeoutCause(working, t.remaining(), ErrLeaseLost)
	defer cancel()
	return e.readHeld(ctx, t) == nil
}

// readHeld reads the record that the next renewal updates. It ends the term if the
// record does not name this process.
func (e *Elector) readHeld(ctx context.Context, t *term) error {
	a := e.read(ctx)
	if a.err != nil {
		return a.err
	}
	if holder := a.record.HolderIdentity; holder != e.identity {
		t.end(fmt.Errorf("%w: %w", ErrLeaseLost, heldBy{holder}))
		return heldBy{holder}
	}
	e.held = *a.record
	return nil
}
