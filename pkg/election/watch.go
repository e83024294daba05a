package election

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"k8s.io/klog/v2"
)

// The shortest and the longest wait before a watch that failed is begun anew.
const (
	minWatchWait = 50 * time.Millisecond
	maxWatchWait = 5 * time.Second
)

var errSilent = errors.New("nothing was heard for the duration of a lease")

// watch has the lock watched until the context is over.
func (e *Elector) watch(ctx context.Context) {
	wait := minWatchWait
	for {
		began := time.Now()
		err := e.watchOnce(ctx)
		if ctx.Err() != nil {
			return
		}
		e.metrics.watchRestarts.Inc()
		klog.FromContext(ctx).V(2).Info("The watch of the lease has ended", "err", err, "lock", e.options.Lock.Describe())
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

// watchOnce runs one watch. A leader renews several times in the duration of a
// lease, so one that has nothing to say for so long is either of no use, or its
// connection is broken.
func (e *Elector) watchOnce(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(e.options.LeaseDuration, func() { cancel(errSilent) })
	defer silence.Stop()
	err := e.options.Watch(ctx, func() {
		silence.Reset(e.options.LeaseDuration)
		signal(e.hints)
	})
	return errors.Join(context.Cause(ctx), err)
}
