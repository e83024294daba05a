package election

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/eventd/eventd/internal/notify"
	"github.com/eventd/eventd/internal/sleep"
)

// The minimum and maximum wait before a failed watch is restarted.
const (
	minWatchWait = 50 * time.Millisecond
	maxWatchWait = 5 * time.Second
)

var (
	errWatchSilent = errors.New("no watch event for the duration of a lease")
	errWatchEnded  = errors.New("the watch ended before the first event")
)

// watch runs Watch again and again until ctx ends.
func (e *Elector) watch(ctx context.Context) {
	wait := minWatchWait
	logged := "" // the last error of a watch without events
	for {
		began := time.Now()
		hinted, err := e.watchOnce(ctx)
		if ctx.Err() != nil {
			return
		}
		e.metrics.watchRestarts.Inc()
		logged = e.logWatchEnd(ctx, hinted, err, logged)
		if time.Since(began) > maxWatchWait {
			wait = minWatchWait // it worked
		}
		if sleep.For(ctx, wait/2+rand.N(wait/2)) != nil {
			return
		}
		wait = min(2*wait, maxWatchWait)
	}
}

// logWatchEnd logs why a watch has ended. The error of a watch without events is
// logged once, until a watch works or the error changes. It returns the error that
// is logged.
func (e *Elector) logWatchEnd(ctx context.Context, hinted bool, err error, logged string) string {
	logger := e.logger(ctx)
	if hinted {
		logger.V(2).Info("The watch of the lease has ended", "err", err)
		return ""
	}
	if err == nil {
		err = errWatchEnded
	}
	if err.Error() != logged {
		logger.Info("Cannot watch the lease: changes are noticed by reads only", "err", err, "every", e.options.RetryPeriod)
		return err.Error()
	}
	logger.V(2).Info("The watch of the lease has ended", "err", err)
	return logged
}

// watchOnce runs one watch, and reports whether it hinted. A leader renews several
// times per lease duration, so a watch that is silent for that long is useless, or
// its connection is broken.
func (e *Elector) watchOnce(ctx context.Context) (hinted bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(e.options.LeaseDuration, func() { cancel(errWatchSilent) })
	defer silence.Stop()
	var hint atomic.Bool
	err = e.options.Watch(ctx, func() {
		hint.Store(true)
		silence.Reset(e.options.LeaseDuration)
		notify.Wake(e.hints)
	})
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	return hint.Load(), err
}
