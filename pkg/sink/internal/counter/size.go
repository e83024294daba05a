package counter

import (
	"cmp"
	"slices"
	"sort"
)

// Size returns which part of MaxBatch everything uses that is pending.
func (c *Counter) Size() int { return c.size }

// Bytes returns the memory of all entries that are pending. It may be called while a worker runs
// Draft.Plan.
func (c *Counter) Bytes() (n int64) {
	for _, list := range [][]Entry{c.pending, c.late} {
		for i := range list {
			n += list[i].Bytes
		}
	}
	return n
}

// GrowthOf returns by how much Add would increase the Size, at most.
func (c *Counter) GrowthOf(sealed uint64, e *Entry, claim Claim) int {
	newest := c.Newest()
	switch takes := c.takes(newest, e, sealed); {
	case takes && (claim == (Claim{}) || newest.endsAt(claim)):
		return 0
	case takes || claim == (Claim{}):
		return 1
	default:
		return 2
	}
}

// EntriesUpTo returns the number of pending entries up to a sequence. It may be called while a
// worker runs Draft.Plan.
func (c *Counter) EntriesUpTo(sequence uint64) (n int) {
	for _, list := range [][]Entry{c.pending, c.late} {
		// Not by value: Plan writes to other fields.
		i, found := sort.Find(len(list), func(i int) int { return cmp.Compare(sequence, list[i].Sequence) })
		if n += i; found {
			n++
		}
	}
	return n
}

// Weight returns the weight of all entries.
func (h *Held) Weight() (sum int64) {
	for i := range h.entries {
		sum += h.entries[i].Weight
	}
	return sum
}

// Clone returns a copy that changes independently. It shares the entries until they change, so that it
// takes no time to add to many. Only one clone of a Held may be used.
func (h *Held) Clone() *Held {
	out := *h
	out.shared = len(h.entries)
	return &out
}

// own copies the entries unless the one at an index, and so all after it, are not shared.
func (h *Held) own(index int) {
	if index >= h.shared {
		return
	}
	h.entries = slices.Clone(h.entries)
	for i := range h.entries {
		h.entries[i].claims = slices.Clone(h.entries[i].claims)
	}
	h.shared = 0
}
