package intake

import (
	"sync/atomic"
	"time"
)

// mostRetryAfterSeconds is the longest that a client is asked to wait.
const mostRetryAfterSeconds = 10

// leaderless is for how long nobody has been found to lead: since the first request
// of which that was said, after the last one that was brought to a leader. It is
// ready as it is, and safe for use by many goroutines.
type leaderless struct{ since atomic.Pointer[time.Time] }

// over is told of every request that was brought to a leader.
func (l *leaderless) over() {
	if l.since.Load() != nil {
		l.since.Store(nil)
	}
}

// retryAfter is in how many seconds a client is to ask again: as many as have gone
// by. client-go's rest client asks ten times more at most, and its recorders give up
// what it then still has an error for: a second each time would be over in ten.
func (l *leaderless) retryAfter() int {
	now := time.Now()
	l.since.CompareAndSwap(nil, &now)
	since := l.since.Load()
	if since == nil {
		return retryAfterSeconds
	}
	return min(max(int(now.Sub(*since).Seconds()), retryAfterSeconds), mostRetryAfterSeconds)
}
