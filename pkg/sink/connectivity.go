package sink

import (
	"math/rand/v2"
	"time"
)

// connectivity is a circuit breaker for an apiserver that cannot be reached. While it is
// open, one series is tried after each pause. The probes do not wait for each other: one
// in a namespace whose requests hang gives no result.
//
// It is not safe for concurrent use; the sink's mutex guards it.
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
func (r *connectivity) sent(now time.Time) {
	if r.pause > 0 {
		r.wait(now)
	}
}

// failed records that a request, begun at a time, did not reach the apiserver.
func (r *connectivity) failed(began, now time.Time) {
	if r.pause > 0 && began.Before(r.failing) || began.Before(r.since) {
		return // it is known, or over
	}
	if r.pause == 0 {
		r.lost = now
	}
	r.pause = min(max(2*r.pause, minPause), maxPause)
	r.failing = now
	r.wait(now)
}

func (r *connectivity) wait(now time.Time) { r.resume = now.Add(r.pause/2 + rand.N(r.pause/2)) }

// succeeded records that a request, begun at a time, reached the apiserver.
func (r *connectivity) succeeded(began, now time.Time) {
	if r.pause == 0 || began.Before(r.lost) {
		return // it says nothing of the time since
	}
	r.pause, r.since = 0, now
}

// dueBefore returns the time before which a deadline must have passed to have been
// overdue for long. Time during which the apiserver was unreachable does not count.
func (r *connectivity) dueBefore(now time.Time, long time.Duration) time.Time {
	if r.pause > 0 || now.Sub(r.since) < long {
		return time.Time{}
	}
	return now.Add(-long)
}
