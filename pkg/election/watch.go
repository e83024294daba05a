package election

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"
)

// The shortest and the longest wait before a watch that failed is begun anew.
const (
	minWatchWait = 50 * time.Millisecond
	maxWatchWait = 5 * time.Second
)

var errSilent = errors.New("nothing was heard for the duration of a lease")

// errNothing is of a watch that ended by itself before it had said anything.
var errNothing = errors.New("it ended without a word")

// watch has the lock watched until the context is over.
func (e *Elector) watch(ctx context.Context) {
	wait := minWatchWait
	said := "" // what has been logged of watches that do not work
	for {
		began := time.Now()
		heard, err := e.watchOnce(ctx)
		if ctx.Err() != nil {
			return
		}
		e.metrics.watchRestarts.Inc()
		said = e.watchEnded(ctx, heard, err, said)
		if time.Since(began) > maxWatchWait {
			wait = minWatchWait // it worked
		}
		select {
		case <-time.After(wait/2 + rand.N(wait/2)):
		case <-ctx.Done():
			return
		}
		wait = min(2*wait, maxWatchWait)
	}
}

// watchEnded logs why a watch has ended. Of one that did not work that is said
// once, until one works or the reason is another: what it costs should not have
// to be looked for. It returns what was said.
func (e *Elector) watchEnded(ctx context.Context, heard bool, err error, said string) string {
	logger := klog.FromContext(ctx).WithValues("lock", e.options.Lock.Describe())
	if heard {
		logger.V(2).Info("The watch of the lease has ended", "err", err)
		return ""
	}
	if err == nil {
		err = errNothing
	}
	if err.Error() != said {
		logger.Info("The lease cannot be watched: a change of the leader is noticed by reading only", "err", err, "every", e.options.RetryPeriod)
		return err.Error()
	}
	logger.V(2).Info("The watch of the lease has ended", "err", err)
	return said
}

// watchOnce runs one watch, and tells whether it said anything. A leader renews
// several times in the duration of a lease, so one that has nothing to say for so
// long is either of no use, or its connection is broken.
func (e *Elector) watchOnce(ctx context.Context) (heard bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(e.options.LeaseDuration, func() { cancel(errSilent) })
	defer silence.Stop()
	var hinted atomic.Bool
	err = e.options.Watch(ctx, func() {
		hinted.Store(true)
		silence.Reset(e.options.LeaseDuration)
		signal(e.hints)
	})
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	return hinted.Load(), err
}
