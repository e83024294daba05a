package intake

import (
	"math/rand/v2"
	"sync"
	"time"
)

const (
	// maxRetryAfter is the longest Retry-After for a crowd, on average. client-go sends a request ten times, so one
	// that is refused is lost after minutes.
	maxRetryAfter = 16
	// crowdPart is the part of the requests in flight that may come in vain each second. Each costs about as much as
	// one that is answered.
	crowdPart = 10
)

// crowd computes the Retry-After of callers who are refused though they have nothing in flight: there are too many of
// them. If all came again after a second, they would take the processors, and fewer and fewer would be answered. So
// the time doubles while too many come in vain, and is shortened when few do. One caller who sends more than its
// share is no crowd, and delays no other.
//
// It is safe for use by many goroutines.
type crowd struct {
	limit int64 // of refusals per second

	mu      sync.Mutex
	since   time.Time
	refused int // since then
	seconds int // of the Retry-After, on average
	rising  time.Time
}

func newCrowd(inFlight int64) *crowd {
	return &crowd{limit: max(1, inFlight/crowdPart), seconds: retryAfterSeconds}
}

// retryAfter counts a refusal, and returns the seconds after which its caller is to come again. They are random, so that
// those who have come together do not come together again.
func (c *crowd) retryAfter(now time.Time) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if passed := now.Sub(c.since); passed >= time.Second {
		c.adjust(now, passed)
		c.since, c.refused = now, 0
	}
	c.refused++
	return 1 + rand.IntN(2*c.seconds-1)
}

// adjust sets the time by the refusals since the last time. Those that were told to come later have to come first,
// before it is prolonged again.
func (c *crowd) adjust(now time.Time, passed time.Duration) {
	switch allowed := float64(c.limit) * passed.Seconds(); {
	case float64(c.refused) > allowed && now.Sub(c.rising) > time.Duration(c.seconds)*time.Second:
		c.seconds, c.rising = min(2*c.seconds, maxRetryAfter), now
	case float64(c.refused) < allowed/2:
		c.seconds = max(retryAfterSeconds, c.seconds-int(passed/time.Second))
	}
}
