package sink

import (
	"slices"
	"time"
)

// deadline is the time of the write that includes the occurrences after the deadline
// before it, up to a sequence. It may have passed.
type deadline struct {
	at   time.Time
	upTo uint64
}

// deadlines are those of all pending occurrences of a series, in order. Only the last one
// may lie in the future. Usually there is one; others are added while a write is queued,
// in flight, or retried.
type deadlines []deadline

// add sets the deadline of the occurrences up to a sequence. It replaces the last
// deadline, earlier or later, unless that has passed. Passed deadlines that are less than
// a grain apart are merged, which bounds their number.
func (d deadlines) add(now, at time.Time, sequence uint64, grain time.Duration) deadlines {
	n := len(d)
	if n > 0 && d[n-1].at.After(now) {
		d[n-1] = deadline{at, sequence}
		return d
	}
	if n > 1 && d[n-1].at.Sub(d[n-2].at) < grain {
		d[n-2].upTo = d[n-1].upTo
		d, n = d[:n-1], n-1
	}
	if n > 0 && !at.After(now) && now.Sub(d[n-1].at) < grain {
		d[n-1].upTo = sequence
		return d
	}
	return append(d, deadline{at, sequence})
}

// sealed returns the last sequence with another deadline than the newest one, 0 if there
// is none.
func (d deadlines) sealed() uint64 {
	if len(d) < 2 {
		return 0
	}
	return d[len(d)-2].upTo
}

// first returns the time of the next write.
func (d deadlines) first() time.Time {
	if len(d) == 0 {
		return time.Time{}
	}
	return d[0].at
}

// last returns the deadline of the newest occurrence.
func (d deadlines) last() time.Time {
	if len(d) == 0 {
		return time.Time{}
	}
	return d[len(d)-1].at
}

// before returns the last sequence whose deadline is before a time, 0 if there is none.
func (d deadlines) before(t time.Time) (sequence uint64) {
	for i := range d {
		if d[i].at.Before(t) {
			sequence = d[i].upTo
		}
	}
	return sequence
}

// bringForward moves a deadline in the future to now.
func (d deadlines) bringForward(now time.Time) {
	if n := len(d); n > 0 && d[n-1].at.After(now) {
		d[n-1].at = now
	}
}

// dropBefore drops the deadlines before a sequence.
func (d deadlines) dropBefore(sequence uint64) deadlines {
	return slices.DeleteFunc(d, func(d deadline) bool { return d.upTo < sequence })
}
