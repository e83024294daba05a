package counter

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/pkg/occurrence"
)

// Settled is an entry with its outcome.
type Settled struct {
	*Entry
	// Created, Written, Replayed and Found are the parts of its weight by outcome.
	// Entry.Forbidden is the rest.
	Created, Written, Replayed, Found int64
	End                               occurrence.Settlement
}

// settleInDoubt settles what is in doubt as uncertain.
func (c *Counter) settleInDoubt() []Settled { return c.settleUncertain(c.inDoubt) }

// settleUncertain settles everything up to a sequence as uncertain.
func (c *Counter) settleUncertain(upTo uint64) []Settled {
	return c.settleUpTo(upTo, func(e *Entry) Settled {
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

// settleFound settles what the count of the observed object includes though no write of this
// process is known to have added it. So it does not matter what one has planned.
func (c *Counter) settleFound(upTo uint64) []Settled {
	return c.settleUpTo(upTo, func(e *Entry) Settled {
		e.planned, e.Forbidden = 0, 0
		end := occurrence.Settlement{Outcome: occurrence.Found, Object: c.observed.meta}
		return Settled{Entry: e, Found: e.Weight, End: end}
	})
}

// settleUpTo settles everything up to a sequence, and reports it to the journal.
func (c *Counter) settleUpTo(upTo uint64, settle func(*Entry) Settled) []Settled {
	out := c.take(upTo, settle)
	c.reportSettled(out)
	return out
}

func (c *Counter) reportSettled(out []Settled) {
	if len(out) == 0 || !c.follows() {
		return
	}
	sequences := make([]uint64, len(out))
	for i := range out {
		sequences[i] = out[i].Sequence
	}
	c.journal.Settled(c, sequences)
}

// take removes everything up to a sequence from what is pending.
func (c *Counter) take(upTo uint64, settle func(*Entry) Settled) []Settled {
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
		c.size -= c.pending[i].Size()
		out[i] = settle(&c.pending[i])
	}
	// The settled entries keep the old array. A clone of nothing would keep it too.
	if n == len(c.pending) {
		c.pending = nil
	} else {
		c.pending = slices.Clone(c.pending[n:])
	}
	c.dropEnds()
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
		c.size -= e.Size()
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
	c.keepEnds(out)
	c.reportSettled(out)
	return out
}

// Withdraw drops the entry that ends with a sequence, if neither a write nor a follower may have it (rule
// Unsent). Otherwise it returns nothing. The counter must not be in work.
func (c *Counter) Withdraw(sequence uint64, reason occurrence.Reason) []Settled {
	i := indexFrom(c.pending, sequence)
	if i == len(c.pending) || c.pending[i].Sequence != sequence || sequence <= max(c.carried, c.byOthers()) {
		return nil
	}
	e := c.pending[i]
	c.size -= e.Size()
	c.pending = slices.Concat(c.pending[:i], c.pending[i+1:])
	if len(c.pending) == 0 {
		c.pending, c.bare = nil, false
		c.resolve()
	}
	out := []Settled{{Entry: &e, End: occurrence.Settlement{Outcome: occurrence.Dropped, Reason: reason}}}
	c.reportSettled(out)
	return out
}

// maxEvicted bounds the evicted ends that are kept.
const maxEvicted = 64

// keepEnds keeps the ends of entries that were evicted from among others. A write that may have
// carried them may have ended with one of them.
func (c *Counter) keepEnds(out []Settled) {
	for i := range out {
		if n := out[i].Sequence; n <= max(c.carried, c.byOthers()) {
			c.evicted = append(c.evicted, n)
		}
	}
	c.dropEnds()
	c.evicted = c.evicted[max(0, len(c.evicted)-maxEvicted):]
}

// dropEnds forgets the evicted ends below everything that is pending.
func (c *Counter) dropEnds() {
	if c.evicted == nil {
		return
	}
	c.evicted = slices.DeleteFunc(c.evicted, func(n uint64) bool { return len(c.pending) == 0 || n < c.pending[0].Sequence })
	if len(c.evicted) == 0 {
		c.evicted = nil
	}
}

// HandOver settles everything up to a sequence as handed over, also what is in doubt: others
// hold it, and find out what is counted. So the journal is not called. The counter must not be
// in work.
func (c *Counter) HandOver(upTo uint64) []Settled {
	out := c.take(upTo, func(e *Entry) Settled {
		return Settled{Entry: e, End: occurrence.Settlement{Outcome: occurrence.HandedOver}}
	})
	if c.inDoubt <= upTo {
		c.resolve()
	}
	return out
}

// Totals calls a function for each total of a client that is known to be counted with the entry
// on the object of its settlement. See Journal.Counted.
func (s *Settled) Totals(counted func(client Contributor, total uint64)) {
	if !s.End.Counted() {
		return
	}
	for _, claim := range s.claims {
		// It is not known whether others have counted an entry of a create-only user as a whole.
		if s.limited || s.createOnly && s.Found > 0 {
			claim = limitTo1(claim)
		}
		counted(claim.Client, uint64(claim.Total))
	}
}
