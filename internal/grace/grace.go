// Package grace bounds how long code of others, a client, a callback or a logger,
// may hold up a shutdown once its time is over.
package grace

import "time"

// Period is how long a shutdown waits for one call that should have ended with its
// context. What honours its context needs a fraction of it.
const Period = 250 * time.Millisecond

// Run calls a function, and returns when that returns or after Period. Then the
// function is left alone, in its own goroutine.
func Run(call func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		call()
	}()
	Wait(done)
}

// Wait waits until a channel is closed, for at most Period, and reports whether it is.
func Wait(done <-chan struct{}) bool { return WaitFor(Period, done) }

// WaitFor is Wait with another limit.
func WaitFor(limit time.Duration, done <-chan struct{}) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}
