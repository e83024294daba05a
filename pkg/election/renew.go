package election

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

func isNotFound(err error) bool { return apierrors.IsNotFound(err) }

// isConflict tells whether another write came first.
func isConflict(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }

// heldBy says whom the lock names instead of this process.
type heldBy struct{ holder string }

func (e heldBy) Error() string {
	if e.holder == "" {
		return "the lease has no holder"
	}
	return fmt.Sprintf("the lease is held by %q", e.holder)
}

// renewUntil renews the Lease until the work is over, or the term.
func (e *Elector) renewUntil(working context.Context, t *term) {
	timer := time.NewTimer(e.options.RetryPeriod)
	defer timer.Stop()
	for {
		select {
		case <-working.Done():
			return
		case <-t.ended:
			return
		case <-timer.C:
		}
		if !t.leading() {
			return
		}
		began := time.Now()
		e.renew(working, t)
		timer.Reset(e.options.RetryPeriod - time.Since(began))
	}
}

// renew makes one attempt to renew the Lease.
func (e *Elector) renew(working context.Context, t *term) {
	ctx, cancel := context.WithTimeoutCause(working, t.remaining(), ErrLeaseLost)
	defer cancel()
	began := now()
	start, err := e.tryRenew(ctx)
	var another heldBy
	switch {
	case err == nil:
		if t.extend(start) {
			e.metrics.renewal.Observe(began.elapsed().Seconds())
		}
	case working.Err() != nil:
		// Its outcome is of no interest any more.
	case errors.As(err, &another):
		t.end(fmt.Errorf("%w: %w", ErrLeaseLost, err))
	default:
		e.metrics.failures.Inc()
		klog.FromContext(ctx).Info("The lease could not be renewed", "err", err, "lock", e.options.Lock.Describe(), "remaining", t.remaining())
	}
}

// tryRenew writes upon what was last written. If that fails, the answer may
// have been lost, or the record be changed: it is read, and written again if it
// still names this process. It returns when the write that succeeded began.
func (e *Elector) tryRenew(ctx context.Context) (moment, error) {
	start, err := e.write(ctx, e.held, e.calls.update)
	if err == nil || ctx.Err() != nil {
		return start, err
	}
	a := e.read(ctx)
	switch {
	case isNotFound(a.err):
		// Deleted. Who saw it held waits for that lease to expire, so this
		// process still leads and may put it back.
		return e.write(ctx, e.held, e.calls.create)
	case a.err != nil:
		return moment{}, a.err
	case a.record.HolderIdentity != e.identity:
		return moment{}, heldBy{a.record.HolderIdentity}
	}
	return e.write(ctx, *a.record, e.calls.update)
}

// write writes the record with this process as its holder from now on. It
// returns when it began.
func (e *Elector) write(ctx context.Context, upon resourcelock.LeaderElectionRecord, call func(context.Context, resourcelock.LeaderElectionRecord) answer) (moment, error) {
	at := metav1.NewTime(time.Now())
	record := resourcelock.LeaderElectionRecord{
		HolderIdentity:       e.identity,
		LeaseDurationSeconds: int(e.options.LeaseDuration / time.Second),
		AcquireTime:          upon.AcquireTime,
		RenewTime:            at,
		LeaderTransitions:    upon.LeaderTransitions,
		Strategy:             upon.Strategy,
		PreferredHolder:      upon.PreferredHolder,
	}
	if upon.HolderIdentity != e.identity {
		record.AcquireTime = at
	}
	e.named = true
	start := now()
	a := call(ctx, record)
	if a.err == nil {
		e.held = record
		e.announce(a.announced)
	}
	return start, a.err
}

// announce notes what this process has published about itself.
func (e *Elector) announce(a Announcement) {
	e.published = a
	if e.Leading() {
		e.see(Leader{Identity: e.identity, Announcement: a})
	}
}

// read reads the record and notes what it says.
func (e *Elector) read(ctx context.Context) answer {
	a := e.calls.get(ctx)
	if a.err != nil {
		return a
	}
	if e.observed.note(a, time.Now()) {
		e.seeHolder(a)
	}
	e.named = a.record.HolderIdentity == e.identity
	return a
}

// seeHolder notes another holder than this process; who leads here is known
// without a read.
func (e *Elector) seeHolder(a answer) {
	switch a.record.HolderIdentity {
	case e.identity:
	case "", resourcelock.UnknownLeader:
		e.see(Leader{})
	default:
		e.see(Leader{Identity: a.record.HolderIdentity, Announcement: a.announced})
	}
}
