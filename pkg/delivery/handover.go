package delivery

import (
	"context"
	"errors"
	"time"

	"k8s.io/klog/v2"

	"github.com/eventd/eventd/internal/sleep"
	"github.com/eventd/eventd/pkg/election"
)

const (
	// handoverTimeout limits the last write of a term, with its repetitions, and before it one in flight.
	// A successor waits for both.
	handoverTimeout = time.Second
	// handoverRetry is the time between two attempts of the last write.
	handoverRetry = 100 * time.Millisecond
)

// outlast returns the context of a write. The end of the term leaves it handoverTimeout, unless the Lease
// is lost: if the write was cancelled, it would be in doubt, and the last one would begin with a conflict.
func outlast(term context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(term), cursorTimeout)
	stop := context.AfterFunc(term, func() {
		if !errors.Is(context.Cause(term), election.ErrLeaseLost) {
			_ = sleep.For(ctx, handoverTimeout)
		}
		cancel()
	})
	return ctx, func() {
		stop()
		cancel()
	}
}

// writeLast writes the cursors at the end of a term, if there is something to write. It tries again while
// there is time: a failure costs as many repetitions as a crash.
func (c *cursors) writeLast(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), handoverTimeout)
	defer cancel()
	err := c.write(ctx)
	for err != nil && sleep.For(ctx, handoverRetry) == nil && c.leading() {
		err = c.write(ctx)
	}
	if err != nil {
		c.metrics.failed.Inc()
		klog.FromContext(ctx).Error(bounded(err), "Could not store the cursors of the receivers at the end of the term. The next leader delivers again what was delivered since the last write")
	}
}
