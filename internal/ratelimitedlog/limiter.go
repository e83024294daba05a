// Package ratelimitedlog limits log lines that an event causes each time it occurs.
package ratelimitedlog

import (
	"sync"
	"time"
)

// Interval is the usual minimum time between two lines for the same reason.
const Interval = time.Minute

// Limiter allows one log line per interval for each reason. The reasons must be a fixed
// set, as they are kept. Make it with New. It is safe for use by many goroutines.
type Limiter struct {
	interval time.Duration

	mu   sync.Mutex
	last map[string]time.Time // by reason
}

// New returns a limiter that has allowed nothing yet.
func New(interval time.Duration) *Limiter {
	return &Limiter{interval: interval, last: make(map[string]time.Time)}
}

// Allow reports whether to log a line for this reason now, and counts it as logged.
func (l *Limiter) Allow(reason string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if last, ok := l.last[reason]; ok && now.Sub(last) < l.interval {
		return false
	}
	l.last[reason] = now
	return true
}
