// Package grace bounds how long a shutdown waits for user code, such as a client, a callback
// or a logger, after its deadline.
package grace

import "time"

// Period is the time for which a shutdown waits for a call after the end of its context. A
// call that honours its context needs a fraction of it.
const Period = 250 * time.Millisecond

// Run calls a function in a goroutine, and returns when it returns, or after Period. Then
// the goroutine is abandoned.
func Run(call func()) { RunFor(Period, call) }

// RunFor is Run with another limit, and reports whether the function has returned.
func RunFor(limit time.Duration, call func()) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		call()
	}()
	return WaitFor(limit, done)
}

// Wait waits until a channel is closed, for at most Period, and reports whether it was.
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
