package sink

import (
	"math/rand/v2"
	"time"
)

// reach is whether the apiserver can be reached at all. While it cannot, one series
// is worked on after each pause, to find out when it can. They do not wait for each
// other: one that is in a namespace where everything hangs finds out nothing.
//
// Whoever owns it guards it.
type reach struct {
	// pause is how long the last wait was, 0 while the apiserver is there. There may
	// be a request at resume.
	pause  time.Duration
	resume time.Time
	// lost is when the first request since it was there has failed, and failing the
	// last.
	lost, failing time.Time
	// since is when the apiserver was found to be there again.
	since time.Time
}

const minPause, maxPause = 50 * time.Millisecond, time.Second

// asks takes note that one is made.
func (r *reach) asks(now time.Time) {
	if r.pause > 0 {
		r.wait(now)
	}
}

// failed takes note that a request that began at a time did not get as far as the
// apiserver.
func (r *reach) failed(began, now time.Time) {
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

func (r *reach) wait(now time.Time) { r.resume = now.Add(r.pause/2 + rand.N(r.pause/2)) }

// worked takes note that a request that began at a time did.
func (r *reach) worked(began, now time.Time) {
	if r.pause == 0 || began.Before(r.lost) {
		return // it says nothing of the time since
	}
	r.pause, r.since = 0, now
}

// dueAgo is a time before which what fell due has been owed for so long. Nobody
// could write while the apiserver was away, so that does not count.
func (r *reach) dueAgo(now time.Time, long time.Duration) time.Time {
	if r.pause > 0 || now.Sub(r.since) < long {
		return time.Time{}
	}
	return now.Add(-long)
}
