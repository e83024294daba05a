// Package sleep waits for a time, and computes that between retries.
package sleep

import (
	"context"
	"math/rand/v2"
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

// Backoff returns the delay after a number of failures in a row: base after the first one, then twice as much after
// each, but not more than most. It is shortened by up to a half, at random.
func Backoff(base, most time.Duration, failures int) time.Duration {
	delay := base
	for ; failures > 1 && delay < most; failures-- {
		delay += min(delay, most-delay)
	}
	return delay - rand.N(delay/2+1)
}
