package counter

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/pkg/occurrence"
)

// Settled is an entry with its outcome.
type Settled struct {
	*Entry
	// Created, Written and Replayed are the parts of its weight by outcome. Entry.Forbidden is
	// the rest.
	Created, Written, Replayed int64
	End                        occurrence.Settlement
}

// settleInDoubt settles what is in doubt as uncertain.
func (c *Counter) settleInDoubt() []Settled {
	return c.settleUpTo(c.inDoubt, func(e *Entry) Settled {
		return Settled{Entry: e, End: occurrence.Settlement{Outcome: occurrence.Uncertain}}
	})
}

// Drop settles everything up to a sequence as dropped for a reason, except what is in doubt,
// which is uncertain.
func (c *Counter) Drop(upTo uint64, reason occurrence.Reason, err error) []Settled {
	out := c.settleUpTo(upTo, func(e *Entry) Settled {
		end := occurrence.Settlement{Outcome: occurrence.Dropped, Reason: reason, Err: err}
		if e.Sequence <= c.inDoubt {
			end = occurrence.Settlement{Outcome: occurrence.Uncertain, Err: err}
		}
		return Settled{Entry: e, End: end}
	})
	if c.inDoubt <= upTo {
		if c.inDoubt > 0 && (c.exclusive || c.observed == nil && c.nonce != 0) {
			// Without annotations, it could not be distinguished from later writes.
			c.forget()
		}
		c.resolve()
	}
	if len(out) > 0 {
		c.bare = false
	}
	return out
}

func (c *Counter) settleWritten(upTo uint64, created bool) []Settled {
	return c.settleWrittenOn(c.observed.meta, upTo, created)
}

// settleWrittenOn settles what the count of an object includes. If the write created the object,
// one occurrence settles as created.
func (c *Counter) settleWrittenOn(object *corev1.Event, upTo uint64, created bool) []Settled {
	return c.settleUpTo(upTo, func(e *Entry) Settled {
		s := Settled{Entry: e, Written: e.planned, Replayed: e.Weight - e.planned - e.Forbidden}
		s.End.Outcome, s.End.Object = e.Merged, object
		switch {
		case created && s.Written > 0:
			s.Created, s.Written, created = 1, s.Written-1, false
			s.End.Outcome = occurrence.Created
		case s.Written == 0 && s.Replayed > 0:
			s.End.Outcome = occurrence.Replayed
		case s.Written == 0 && e.limited:
			s.End = c.patchForbidden()
		}
		return s
	})
}

func (c *Counter) settleUpTo(upTo uint64, settle func(*Entry) Settled) []Settled {
	n, _ := slices.BinarySearchFunc(c.pending, upTo, func(e Entry, upTo uint64) int {
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
		out[i] = settle(&c.pending[i])
	}
	// The settled entries keep the old array. A clone of nothing would keep it too.
	if n == len(c.pending) {
		c.pending = nil
	} else {
		c.pending = slices.Clone(c.pending[n:])
	}
	return out
}

// Evict settles the entries of an owner. The counter must not be in work.
func (c *Counter) Evict(owner any) (out []Settled) {
	var kept []Entry
	for i := range c.pending {
		e := &c.pending[i]
		if e.Owner != owner {
			kept = append(kept, *e)
			continue
		}
		end := occurrence.Settlement{Outcome: occurrence.Dropped, Reason: occurrence.PendingFull}
		switch {
		case e.Sequence <= c.inDoubt:
			end = occurrence.Settlement{Outcome: occurrence.Uncertain}
		case e.Acknowledged:
			end.Reason = occurrence.AcknowledgedEvicted
		}
		out = append(out, Settled{Entry: e, End: end})
	}
	if c.pending = kept; len(kept) == 0 {
		c.resolve()
		c.bare = false
	}
	return out
}
