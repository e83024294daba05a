package election

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

func isNotFound(err error) bool { return apierrors.IsNotFound(err) }

// isConflict tells whether another write came first.
func isConflict(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }

// isRefused tells whether the answer is that nothing was written. After any other
// error it may have been, or may yet be.
func isRefused(err error) bool {
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code >= http.StatusBadRequest && code < http.StatusInternalServerError
}

// heldBy says whom the lock names instead of this process.
type heldBy struct{ holder string }

func (e heldBy) Error() string {
	if e.holder == "" {
		return "the lease has no holder"
	}
	return fmt.Sprintf("the lease is held by %q", e.holder)
}

// hintPause is the shortest time between two hints that a leader listens to: its
// own renewals are hinted at, too, and whoever hints without end must not use up
// the requests that renewals need.
const hintPause = 200 * time.Millisecond

// renewRetry is the shortest time between two attempts to renew.
const renewRetry = 100 * time.Millisecond

// renewUntil renews the Lease until the work is over, or the term. At a hint
// that the record may have changed it looks at it, and does not wait for the
// next renewal to find that out.
func (e *Elector) renewUntil(working context.Context, t *term) {
	due := time.NewTimer(e.options.RetryPeriod)
	defer due.Stop()
	hints := e.hints
	var pause <-chan time.Time
	for t.leading() {
		select {
		case <-working.Done():
			return
		case <-t.ended:
			return
		case <-due.C:
			due.Reset(e.renew(working, t))
		case <-hints:
			if !e.look(working, t) {
				due.Reset(0)
			}
			hints, pause = nil, time.After(hintPause)
		case <-pause:
			hints = e.hints
		}
	}
}

// renew makes one attempt to renew the Lease, and tells when to make the next.
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
		// Its outcome is of no interest any more, or the end of the term.
	default:
		e.metrics.failures.Inc()
		klog.FromContext(ctx).Info("The lease could not be renewed", "err", err, "lock", e.options.Lock.Describe(), "remaining", t.remaining())
	}
	// The nearer the deadline, the sooner: an apiserver that is back before it
	// has to be asked before it.
	return min(e.options.RetryPeriod, max(t.remaining()/4, renewRetry))
}

// tryRenew writes upon what was last written or read. If that fails, the answer
// may have been lost, or the record be changed: it is read, and written again if
// it still names this process. It returns when the write that succeeded began.
func (e *Elector) tryRenew(ctx context.Context, t *term) (moment, error) {
	if !e.unsure {
		start, err := e.write(ctx, e.held, e.calls.update)
		if err == nil || ctx.Err() != nil {
			return start, err
		}
	}
	err := e.readHeld(ctx, t)
	switch {
	case isNotFound(err):
		// Deleted. Who saw it held waits for that lease to expire, so this
		// process still leads and may put it back.
		return e.write(ctx, e.held, e.calls.create)
	case err != nil:
		return moment{}, err
	}
	return e.write(ctx, e.held, e.calls.update)
}

// look tells whether the record still names this process, as far as can be told.
func (e *Elector) look(working context.Context, t *term) bool {
	ctx, cancel := context.WithTimeoutCause(working, t.remaining(), ErrLeaseLost)
	defer cancel()
	return e.readHeld(ctx, t) == nil
}

// readHeld reads what is to be written upon. The term ends if that is another's.
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
	switch {
	case a.err == nil:
		e.held, e.unsure, e.unanswered = record, false, false
		e.announce(a.announced)
	case !isRefused(a.err):
		e.unanswered = true
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
	e.unsure = a.err != nil
	if e.unsure {
		return a
	}
	if e.observed.note(a, time.Now()) {
		since := e.observed.since
		e.renewed.Store(&since)
		e.unanswered = false
		e.seeHolder(a)
	}
	e.named = a.named || e.unanswered
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
