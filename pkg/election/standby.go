package election

import (
	"context"
	"math/rand/v2"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

// standBy returns when the Lease is acquired, with the moment at which that
// began, or false when the context is over.
func (e *Elector) standBy(ctx context.Context) (moment, bool) {
	for ctx.Err() == nil {
		if start, ok := e.tryAcquire(ctx); ok {
			return start, true
		}
		e.await(ctx)
	}
	return moment{}, false
}

// follow notes who leads, until the context is over.
func (e *Elector) follow(ctx context.Context) {
	for ctx.Err() == nil {
		e.forgetExpired()
		if a := e.read(ctx); a.err != nil {
			e.notRead(ctx, a.err)
		}
		e.await(ctx)
	}
}

// await returns when it is time to read again: after RetryPeriod and some
// jitter, when the holder's lease expires, at a hint.
func (e *Elector) await(ctx context.Context) {
	wait := e.options.RetryPeriod + rand.N(jittered(e.options.RetryPeriod)-e.options.RetryPeriod+1)
	if left := e.untilFree(); left > 0 {
		wait = min(wait, left)
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-e.hints:
	case <-ctx.Done():
	}
}

// untilFree is how long the holder's lease is still to be respected, by this
// process's clock; 0 or less if it need not be.
func (e *Elector) untilFree() time.Duration {
	if !e.observed.holding() || e.observed.record.HolderIdentity == e.identity {
		return 0
	}
	return time.Until(e.observed.expires(e.options.LeaseDuration))
}

// tryAcquire reads the record and acquires the Lease if it is free: released,
// expired, or this process's own from a write whose answer was lost or from
// before a loss.
func (e *Elector) tryAcquire(ctx context.Context) (moment, bool) {
	e.forgetExpired()
	reading := time.Now()
	a := e.read(ctx)
	missing := isNotFound(a.err)
	if a.err != nil && !missing {
		e.notRead(ctx, a.err)
		return moment{}, false
	}
	// A Lease that was deleted while it was held is still to be respected.
	if e.untilFree() > 0 {
		e.missed = 0
		return moment{}, false
	}
	if ctx.Err() != nil {
		return moment{}, false // a stop came during the read
	}
	start, err := e.acquire(ctx, missing)
	if err != nil {
		e.missedIt(ctx, err)
		return moment{}, false
	}
	e.missed = 0
	e.metrics.handover.Observe(time.Since(e.freeSince(reading)).Seconds())
	return start, true
}

// notRead says so, unless nobody wants to know any more.
func (e *Elector) notRead(ctx context.Context, err error) {
	if ctx.Err() == nil {
		klog.FromContext(ctx).Info("The lease could not be read", "err", err, "lock", e.options.Lock.Describe())
	}
}

// acquire is not cancelled by a stop: the server may have what was sent, and this
// process would end without knowing that the Lease names it.
func (e *Elector) acquire(ctx context.Context, missing bool) (moment, error) {
	ctx, cancel := outlasting(ctx, e.options.ReleaseTimeout/2)
	defer cancel()
	if missing {
		return e.write(ctx, resourcelock.LeaderElectionRecord{}, e.calls.create)
	}
	upon := e.observed.record
	if upon.HolderIdentity != e.identity {
		upon.LeaderTransitions++
	}
	return e.write(ctx, upon, e.calls.update)
}

// outlasting returns a context that is over some time after another one.
func outlasting(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(d, cancel) })
	return longer, func() {
		stop()
		cancel()
	}
}

// missedIt has the record read again at once: another was faster, or only the
// answer was lost. If that happens again, there is no hurry.
func (e *Elector) missedIt(ctx context.Context, err error) {
	e.missed++
	if e.missed == 1 || isConflict(err) {
		signal(e.hints)
	}
	if ctx.Err() == nil && !isConflict(err) {
		klog.FromContext(ctx).Info("The lease could not be acquired", "err", err, "lock", e.options.Lock.Describe())
	}
}

// freeSince is when the Lease was seen to be free: when its holder's lease
// expired, or else when it was read.
func (e *Elector) freeSince(reading time.Time) time.Time {
	if e.observed.holding() && e.observed.record.HolderIdentity != e.identity {
		return e.observed.expires(e.options.LeaseDuration)
	}
	return reading
}

// forgetExpired notes that nobody is known to lead, when the holder's lease has
// expired, whether or not the lock can be asked.
func (e *Elector) forgetExpired() {
	if e.untilFree() <= 0 {
		e.see(Leader{})
	}
}
