package election

import (
	"context"
	"math/rand/v2"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/eventd/eventd/internal/notify"
	"github.com/eventd/eventd/internal/sleep"
)

// standBy acquires the Lease, and returns when the acquiring write began. It returns
// false when ctx ends.
func (e *Elector) standBy(ctx context.Context) (moment, bool) {
	for ctx.Err() == nil {
		if start, ok := e.tryAcquire(ctx); ok {
			return start, true
		}
		e.waitForRead(ctx)
	}
	return moment{}, false
}

// follow keeps the leader up to date until ctx ends.
func (e *Elector) follow(ctx context.Context) {
	for ctx.Err() == nil {
		e.forgetExpired()
		if a := e.read(ctx); a.err != nil {
			e.logReadError(ctx, a.err)
		}
		e.waitForRead(ctx)
	}
}

// waitForRead returns when the record is to be read again: after RetryPeriod and
// some jitter, when the holder's lease expires, or at a hint.
func (e *Elector) waitForRead(ctx context.Context) {
	wait := e.options.RetryPeriod + rand.N(jittered(e.options.RetryPeriod)-e.options.RetryPeriod+1)
	if left := e.untilFree(); left > 0 {
		wait = min(wait, left)
	}
	_ = sleep.Until(ctx, wait, e.hints)
}

// untilFree returns the time until the holder's lease expires, by this process's
// clock. It is not positive if the Lease is free.
func (e *Elector) untilFree() time.Duration {
	if !e.heldByOther() {
		return 0
	}
	return time.Until(e.observed.expires(e.options.LeaseDuration))
}

// heldByOther reports whether the record names another process that may be alive.
func (e *Elector) heldByOther() bool {
	holder := e.observed.record.HolderIdentity
	return holder != "" && holder != e.identity && holder != e.options.Ended
}

// tryAcquire reads the record, and acquires the Lease if it is free: released,
// expired, held by this process, from a former term or a write in doubt, or by one that has ended.
func (e *Elector) tryAcquire(ctx context.Context) (moment, bool) {
	e.forgetExpired()
	reading := time.Now()
	a := e.read(ctx)
	missing := isNotFound(a.err)
	if a.err != nil && !missing {
		e.logReadError(ctx, a.err)
		return moment{}, false
	}
	// A Lease that was deleted while it was held counts until it would have expired.
	if e.untilFree() > 0 {
		e.missed = 0
		return moment{}, false
	}
	if ctx.Err() != nil {
		return moment{}, false // stopped during the read
	}
	start, err := e.acquire(ctx, missing)
	if err != nil {
		e.acquisitionFailed(ctx, err)
		return moment{}, false
	}
	e.missed = 0
	e.metrics.handover.Observe(time.Since(e.freeSince(reading)).Seconds())
	return start, true
}

// logReadError logs an error that is not caused by the end of ctx.
func (e *Elector) logReadError(ctx context.Context, err error) {
	if ctx.Err() == nil {
		e.logger(ctx).Info("Could not read the lease", "err", err)
	}
}

// acquire is not cancelled by a stop: the server may have received the write, and
// the process would end with the Lease in doubt.
func (e *Elector) acquire(ctx context.Context, missing bool) (moment, error) {
	ctx, cancel := delayCancellation(ctx, e.options.ReleaseTimeout/2)
	defer cancel()
	if missing {
		return e.write(ctx, resourcelock.LeaderElectionRecord{}, e.calls.create)
	}
	previous := e.observed.record
	// The first holder of a Lease that was applied without one replaces nobody.
	neverHeld := previous.HolderIdentity == "" && previous.RenewTime.IsZero()
	if previous.HolderIdentity != e.identity && !neverHeld {
		previous.LeaderTransitions++
	}
	return e.write(ctx, previous, e.calls.update)
}

// delayCancellation returns a context that ends d later than its parent.
func delayCancellation(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	delayed, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(d, cancel) })
	return delayed, func() {
		stop()
		cancel()
	}
}

// acquisitionFailed has the record read again at once after a conflict, or after the
// first failure, since only the answer may be lost. Later failures wait.
func (e *Elector) acquisitionFailed(ctx context.Context, err error) {
	e.missed++
	if e.missed == 1 || isConflict(err) {
		notify.Wake(e.hints)
	}
	if ctx.Err() == nil && !isConflict(err) {
		e.logger(ctx).Info("Could not acquire the lease", "err", err)
	}
}

// freeSince returns when the holder's lease expired, or else when the Lease was read
// to be free.
func (e *Elector) freeSince(reading time.Time) time.Time {
	if e.heldByOther() {
		return e.observed.expires(e.options.LeaseDuration)
	}
	return reading
}

// forgetExpired removes a leader whose lease has expired, also when the lock does
// not answer.
func (e *Elector) forgetExpired() {
	if e.untilFree() <= 0 {
		e.setLeader(Leader{})
	}
}
