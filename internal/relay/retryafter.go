package relay

import (
	"sync/atomic"
	"time"
)

// Clients are asked to retry after that many seconds.
const (
	minRetryAfter = 1
	maxRetryAfter = 10
)

// leaderless is since when no leader was found: from the first request that was refused
// for that, until one is handled by a leader. The zero value is ready, and safe for use
// by many goroutines.
type leaderless struct{ since atomic.Pointer[time.Time] }

// end is called for every request that a leader has handled.
func (l *leaderless) end() {
	if l.since.Load() != nil {
		l.since.Store(nil)
	}
}

// retryAfter returns the seconds after which a client should retry: as many as it has
// been without a leader. client-go's rest client retries ten times at most, and its
// recorders then drop the Event: with one second each, they would be lost after ten.
func (l *leaderless) retryAfter() int {
	now := time.Now()
	l.since.CompareAndSwap(nil, &now)
	since := l.since.Load()
	if since == nil {
		return minRetryAfter
	}
	return min(max(int(now.Sub(*since).Seconds()), minRetryAfter), maxRetryAfter)
}
