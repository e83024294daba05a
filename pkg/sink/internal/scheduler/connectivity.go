package scheduler

import (
	"math/rand/v2"
	"time"
)

// connectivity is a circuit breaker for an apiserver that cannot be reached. While it is
// open, one series is tried after each pause. The probes do not wait for each other: one
// in a namespace whose requests hang gives no result.
//
// It is not safe for concurrent use; the owner of the Scheduler guards it.
type connectivity struct {
	// pause is the last delay between probes, 0 while the breaker is closed. The next
	// probe is allowed at resume.
	pause  time.Duration
	resume time.Time
	// lost and failing are the times of the first and of the last failure.
	lost, failing time.Time
	// since is when the breaker was closed.
	since time.Time
}

const minPause, maxPause = 50 * time.Millisecond, time.Second

// sent records that a request is sent.
func (c *connectivity) sent(now time.Time) {
	if c.pause > 0 {
		c.wait(now)
	}
}

// failed records that a request, begun at a time, did not reach the apiserver.
func (c *connectivity) failed(began, now time.Time) {
	if c.pause > 0 && began.Before(c.failing) || began.Before(c.since) {
		return // it is known, or over
	}
	if c.pause == 0 {
		c.lost = now
	}
	c.pause = min(max(2*c.pause, minPause), maxPause)
	c.failing = now
	c.wait(now)
}

func (c *connectivity) wait(now time.Time) { c.resume = now.Add(c.pause/2 + rand.N(c.pause/2)) }

// succeeded records that a request, begun at a time, reached the apiserver.
func (c *connectivity) succeeded(began, now time.Time) {
	if c.pause == 0 || began.Before(c.lost) {
		return // it says nothing of the time since
	}
	c.pause, c.since = 0, now
}

// overdueBefore returns the time before which a deadline must have passed to have been
// overdue for long. Time during which the apiserver was unreachable does not count.
func (c *connectivity) overdueBefore(now time.Time, long time.Duration) time.Time {
	if c.pause > 0 || now.Sub(c.since) < long {
		return time.Time{}
	}
	return now.Add(-long)
}
