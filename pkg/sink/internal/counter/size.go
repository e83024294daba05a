package counter

import (
	"cmp"
	"slices"
)

// EntriesUpTo returns the number of pending entries up to a sequence. It may be called while a
// worker runs Draft.Plan.
func (c *Counter) EntriesUpTo(sequence uint64) (n int) {
	for _, list := range [][]Entry{c.pending, c.late} {
		i, found := slices.BinarySearchFunc(list, sequence, func(e Entry, upTo uint64) int { return cmp.Compare(e.Sequence, upTo) })
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

// Clone returns a copy that changes independently.
func (h *Held) Clone() *Held {
	out := *h
	out.entries = slices.Clone(h.entries)
	for i := range out.entries {
		out.entries[i].claims = slices.Clone(out.entries[i].claims)
	}
	return &out
}
