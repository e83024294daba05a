package sink

import (
	"slices"
	"time"
)

// due is when the write is to be made, or was, of what was added up to a
// sequence and after the due before.
type due struct {
	at   time.Time
	upTo uint64
}

// dues are those of all that a series owes, in order. Only the last one may lie
// in the future. Usually there is one: others are added while a write is queued,
// in flight, or tried again.
type dues []due

// add decides at a time that what is pending up to a sequence is to be written
// at another. That replaces what was decided before, be it sooner or later,
// unless it has fallen due meanwhile. What has fallen due is told apart by the
// grain only, so that there is not much of it.
func (d dues) add(now, at time.Time, sequence uint64, grain time.Duration) dues {
	n := len(d)
	if n > 0 && d[n-1].at.After(now) {
		d[n-1] = due{at, sequence}
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
	return append(d, due{at, sequence})
}

// apart is the last sequence that does not fall due with the newest one, 0 if
// there is none.
func (d dues) apart() uint64 {
	if len(d) < 2 {
		return 0
	}
	return d[len(d)-2].upTo
}

// first is when the next write is to be made.
func (d dues) first() time.Time {
	if len(d) == 0 {
		return time.Time{}
	}
	return d[0].at
}

// last is when the write of the newest is to be made.
func (d dues) last() time.Time {
	if len(d) == 0 {
		return time.Time{}
	}
	return d[len(d)-1].at
}

// before is the last sequence that fell due before a time, 0 if there is none.
func (d dues) before(t time.Time) (sequence uint64) {
	for i := range d {
		if d[i].at.Before(t) {
			sequence = d[i].upTo
		}
	}
	return sequence
}

// forward makes everything due by now.
func (d dues) forward(now time.Time) {
	if n := len(d); n > 0 && d[n-1].at.After(now) {
		d[n-1].at = now
	}
}

// from leaves out what comes before a sequence.
func (d dues) from(sequence uint64) dues {
	return slices.DeleteFunc(d, func(d due) bool { return d.upTo < sequence })
}
