// Package sleep waits for a time.
package sleep

import (
	"context"
	"time"
)

// For waits for d, or returns the cause of ctx if that ends before.
func For(ctx context.Context, d time.Duration) error { return Until(ctx, d, nil) }

// Until is For, and returns nil at once when something is received from wake, or that is closed.
func Until(ctx context.Context, d time.Duration, wake <-chan struct{}) error {
	if d <= 0 { // the race detector of Go 1.26 crashes in a bubble of synctest with such a timer
		return context.Cause(ctx)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-wake:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
