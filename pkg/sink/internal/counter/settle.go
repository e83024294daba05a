package counter

import (
	"slices"

	"github.com/eventd/eventd/pkg/occurrence"
	corev1 "k8s.io/api/core/v1"
)

// settled is an entry that has its outcome.
type Settled struct {
	*Entry
	// parts of the entry's weight by outcome.
	Created, Written, Replayed int64
	End                        occurrence.Settlement
}

// settleDoubt settles what may have been written, as nobody can tell any more.
func (a *Counter) settleInDoubt() []Settled {
	return a.settleUpTo(a.inDoubt, func(e *Entry) Settled {
		return Settled{Entry: e, End: occurrence.Settlement{Outcome: occurrence.Uncertain}}
	})
}

// giveUp settles everything up to a sequence as dropped for a reason, except
// what may have been written.
func (a *Counter) Drop(upTo uint64, reason occurrence.Reason, err error) []Settled {
	out := a.settleUpTo(upTo, func(e *Entry) Settled {
		end := occurrence.Settlement{Outcome: occurrence.Dropped, Reason: reason, Err: err}
		if e.Sequence <= a.inDoubt {
			end = occurrence.Settlement{Outcome: occurrence.Uncertain, Err: err}
		}
		return Settled{Entry: e, End: end}
	})
	if a.inDoubt <= upTo {
		if a.inDoubt > 0 && (a.exclusive || a.observed == nil && a.nonce != 0) {
			// Once it is there, nothing tells it from what follows.
			a.forget()
		}
		a.resolve()
	}
	if len(out) > 0 {
		a.bare = false
	}
	return out
}

func (a *Counter) settleWritten(upTo uint64, created bool) []Settled {
	return a.settleWrittenOn(a.observed.meta, upTo, created)
}

// settleWrittenOn settles what is in the count of an object. If the write that
// carried it created the object, one unit settles as created.
func (a *Counter) settleWrittenOn(object *corev1.Event, upTo uint64, created bool) []Settled {
	return a.settleUpTo(upTo, func(e *Entry) Settled {
		s := Settled{Entry: e, Written: e.planned, Replayed: e.Weight - e.planned - e.Forbidden}
		s.End.Outcome, s.End.Object = e.Merged, object
		switch {
		case created && s.Written > 0:
			s.Created, s.Written, created = 1, s.Written-1, false
			s.End.Outcome = occurrence.Created
		case s.Written == 0 && s.Replayed > 0:
			s.End.Outcome = occurrence.Replayed
		case s.Written == 0 && e.limited:
			s.End = a.patchForbidden()
		}
		return s
	})
}

func (a *Counter) settleUpTo(upTo uint64, settle func(*Entry) Settled) []Settled {
	n, _ := slices.BinarySearchFunc(a.pending, upTo, func(e Entry, upTo uint64) int {
		if e.Sequence <= upTo {
			return -1
		}
		return 1
	})
	if n == 0 {
		return nil
	}
	out := make([]Settled, n)
	for i := range out {
		out[i] = settle(&a.pending[i])
	}
	// A new array leaves what has settled to out alone; so does none, where a
	// clone of nothing would hold on to the old one.
	if n == len(a.pending) {
		a.pending = nil
	} else {
		a.pending = slices.Clone(a.pending[n:])
	}
	return out
}

// evict settles what is pending of an owner. What others have reported stays.
func (a *Counter) Evict(owner any) (out []Settled) {
	var kept []Entry
	for i := range a.pending {
		e := &a.pending[i]
		if e.Owner != owner {
			kept = append(kept, *e)
			continue
		}
		end := occurrence.Settlement{Outcome: occurrence.Dropped, Reason: occurrence.PendingFull}
		switch {
		case e.Sequence <= a.inDoubt:
			end = occurrence.Settlement{Outcome: occurrence.Uncertain}
		case e.Acknowledged:
			end.Reason = occurrence.AcknowledgedEvicted
		}
		out = append(out, Settled{Entry: e, End: end})
	}
	if a.pending = kept; len(kept) == 0 {
		a.resolve()
		a.bare = false
	}
	return out
}
