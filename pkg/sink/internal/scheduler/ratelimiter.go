package scheduler

import (
	"time"

	"golang.org/x/time/rate"
)

// rateLimiter limits the requests per second. It is safe for concurrent use.
type rateLimiter struct{ *rate.Limiter }

// delay returns the time until the next request is allowed.
func (r rateLimiter) delay(now time.Time) time.Duration {
	if tokens := r.TokensAt(now); tokens < 1 {
		return time.Duration((1 - tokens) / float64(r.Limit()) * float64(time.Second))
	}
	return 0
}
