// Package timing does things at a pace, and tells how long things took.
package timing

import (
	"context"
	"time"

	"github.com/eventd/eventd/test/await"
)

// Paced calls f with 0 to n-1, evenly over a time, or at once if that is 0. Late calls are caught up.
// It returns the cause of ctx if that ends before.
func Paced(ctx context.Context, n int, over time.Duration, f func(int)) error {
	start := time.Now()
	for i := range n {
		// Shorter waits than the resolution of timers add up first.
		if ahead := over*time.Duration(i)/time.Duration(n) - time.Since(start); ahead > time.Millisecond {
			if err := await.Sleep(ctx, ahead); err != nil {
				return err
			}
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		f(i)
	}
	return nil
}

// Percentile is the time that so many of a hundred do not exceed. The times are in ascending order, and
// there is at least one.
func Percentile(times []time.Duration, n int) time.Duration {
	return times[(n*len(times)+99)/100-1]
}
