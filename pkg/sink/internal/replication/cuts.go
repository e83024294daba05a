package replication

import "slices"

// cuts are the sequences after which the holding of a follower may end: at least acked, and at
// most sent. Entries are not joined over them.
type cuts struct {
	acked, sent uint64
	pending     int // entries up to sent, of a stream that has ended
}

// keep reports whether the cut after first and before second must stay (rule Cut).
func (c *cuts) keep(first, second uint64) bool { return first <= c.sent && second > c.acked }

// maxEnded bounds the ended streams of which the cuts are kept one by one.
const maxEnded = 64

// endedCuts are those of streams that have ended. They stay until everything up to them has
// settled, whatever followers acknowledge later (rule Seal).
type endedCuts []cuts

// add adds the cuts of a stream. pending returns how many entries are pending up to a sequence.
func (e endedCuts) add(c cuts, pending func(upTo uint64) int) endedCuts {
	if c.sent == 0 {
		return e
	}
	if len(e) >= maxEnded {
		// The hull of the two oldest keeps more than both.
		c := cuts{acked: min(e[0].acked, e[1].acked), sent: max(e[0].sent, e[1].sent)}
		c.pending = max(e[0].pending, e[1].pending)
		e = slices.Insert(e[2:], 0, c)
	}
	if c.pending = pending(c.sent); c.pending == 0 {
		return e
	}
	return append(e, c)
}

// removed records that an entry is no longer pending.
func (e endedCuts) removed(sequence uint64) endedCuts {
	over := false
	for i := range e {
		if sequence <= e[i].sent {
			e[i].pending--
			over = over || e[i].pending == 0
		}
	}
	if !over {
		return e
	}
	return slices.DeleteFunc(e, func(c cuts) bool { return c.pending == 0 })
}

func (e endedCuts) keep(first, second uint64) bool {
	for i := range e {
		if e[i].keep(first, second) {
			return true
		}
	}
	return false
}
