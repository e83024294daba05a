package daemon

import (
	"context"
	"fmt"
	"time"

	"k8s.io/klog/v2"
)

// answerTime is what is kept of the grace period for the requests whose
// occurrences were settled by the end of the drain: they are to be answered
// before the process goes. It is at most a tenth of the grace period.
const answerTime = time.Second

// shutdown stops the stream from its source on, within grace. It returns
// drain's error, which says what could not be written.
//
// Requests are waited for first, because each of them has an occurrence that
// is being written and an answer that its client waits for. They get half of
// the time: a write that the apiserver does not take must not keep the others,
// which only the drain flushes, from their turn.
func shutdown(ctx context.Context, grace time.Duration, stopServing func() <-chan struct{}, drain func(context.Context) error) error {
	logger := klog.FromContext(ctx)
	logger.Info("Shutting down", "reason", context.Cause(ctx), "gracePeriod", grace)
	end := time.Now().Add(grace)
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), end)
	defer cancel()

	idle := stopServing()
	if !within(ctx, grace/2, idle) {
		logger.Info("Draining while requests are still in flight")
	}
	drainCtx, cancelDrain := context.WithDeadline(ctx, end.Add(-min(answerTime, grace/10)))
	defer cancelDrain()
	err := drain(drainCtx)
	if !within(ctx, grace, idle) {
		logger.Info("Requests in flight were not answered before the end of the grace period")
	}
	if err != nil {
		return fmt.Errorf("shutting down: %w", err)
	}
	logger.Info("Everything that was accepted is settled")
	return nil
}

// within waits for done, but no longer than limit and no longer than ctx, and
// tells whether done came.
func within(ctx context.Context, limit time.Duration, done <-chan struct{}) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}
