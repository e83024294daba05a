package election

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/eventd/eventd/internal/sleep"
)

// releaseRetry is the time between two attempts to release.
const releaseRetry = 100 * time.Millisecond

// finish is the end of Run with the error err. It releases the Lease and waits for
// the last call to the lock, for ReleaseTimeout after from at most.
func (e *Elector) finish(ctx context.Context, from time.Time, err error) {
	ctx, cancel := context.WithDeadlineCause(context.WithoutCancel(ctx), from.Add(e.options.ReleaseTimeout),
		fmt.Errorf("not done within %s", e.options.ReleaseTimeout))
	defer cancel()
	logger := e.logger(ctx).WithValues("identity", e.identity)
	switch {
	case !e.mayHold:
	case errors.Is(err, ErrNotStopped):
		logger.Error(err, "The lease is not released, because leader work has not ended")
	default:
		if err := e.release(ctx); err != nil {
			logger.Error(err, "The lease is not released: it has to expire")
		}
	}
	if err := e.calls.wait(ctx); err != nil {
		logger.Error(err, "Abandoned a call to the lock, which has not returned")
	}
}

// release clears the holder if it is this process, so that a standby acquires the
// Lease at once.
func (e *Elector) release(ctx context.Context) error {
	for conflicts := 0; ; {
		err := e.tryRelease(ctx)
		if err == nil {
			return nil
		}
		if isConflict(err) {
			if conflicts++; conflicts == 1 {
				continue // read again at once
			}
		}
		if ended := sleep.For(ctx, releaseRetry); ended != nil {
			return fmt.Errorf("%w: %w", ended, err)
		}
	}
}

// tryRelease reads the record, and clears the holder if it is this process. After a
// long pause, a former leader finds its successor there. An acquisition in doubt may
// still arrive: it was made for the record as last seen, or for none. A write of
// that record makes it fail.
func (e *Elector) tryRelease(ctx context.Context) error {
	a := e.calls.get(ctx)
	write := e.calls.update
	switch {
	case isNotFound(a.err) && e.inDoubt:
		a.record, write = &resourcelock.LeaderElectionRecord{}, e.calls.create
	case isNotFound(a.err):
		e.mayHold = false
		return nil
	case a.err != nil:
		return a.err
	case a.named, e.inDoubt && string(a.raw) == e.observed.raw:
	default:
		e.mayHold = false
		return nil
	}
	at := metav1.NewTime(time.Now())
	err := write(ctx, resourcelock.LeaderElectionRecord{
		LeaseDurationSeconds: 1, // as client-go does, for electors that wait for it
		AcquireTime:          at,
		RenewTime:            at,
		LeaderTransitions:    a.record.LeaderTransitions,
	}).err
	if err != nil {
		return err
	}
	e.mayHold = false
	e.metrics.changed(released)
	e.logger(ctx).Info("Released the lease", "identity", e.identity)
	return nil
}
