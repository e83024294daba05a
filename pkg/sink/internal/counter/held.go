package counter

import (
	"errors"
	"slices"
)

// Held is what a follower holds of what a contributor has pending of one series. It mirrors the
// entries of the contributor's Counter: each change is applied in order. An error means that a
// change does not fit and was not applied. Then the stream that brought it must end.
//
// One goroutine at a time may use it.
type Held struct {
	contributor Contributor
	series      Series
	entries     []Entry
	shared      int // so many of the entries are those of another Held too
	size        int // of all entries; see MaxBatch
	bytes       int64
}

// Errors of changes that do not fit.
var (
	errOrder     = errors.New("an entry is not above those before it")
	errNotMerged = errors.New("there is no entry that an occurrence can be part of")
	errNotHeld   = errors.New("there is no such entry")
	errTooLarge  = errors.New("a series has more entries and claims than one write takes") // its leader refuses them
)

// Hold returns a Held without entries.
func Hold(contributor Contributor, s Series) *Held { return &Held{contributor: contributor, series: s} }

// Series returns the series.
func (h *Held) Series() Series { return h.series }

// Apply adds an entry, or an occurrence that became part of the newest entry.
func (h *Held) Apply(r EntryRecord, merged bool) error {
	newest := h.newest()
	e, err := r.entry(newest)
	switch {
	case err != nil:
		return err
	case e.Newest.Event.Namespace != h.series.Namespace || e.Oldest.Event.Namespace != h.series.Namespace:
		return errRecord
	case newest == nil && merged:
		return errNotMerged
	case newest != nil && e.Sequence <= newest.Sequence:
		return errOrder
	case h.size+growthOf(newest, e, merged) > MaxBatch:
		return errTooLarge // an adopted series is written as a whole
	}
	if !merged {
		h.entries = append(h.entries, *e)
		h.size += e.Size()
		h.bytes += h.newest().measure()
		return nil
	}
	h.own(len(h.entries) - 1)
	h.join(h.newest(), e)
	return nil
}

// growthOf returns by how much the Size of a Held grows by an entry, at most.
func growthOf(newest, e *Entry, merged bool) int {
	switch {
	case !merged:
		return e.Size()
	case len(e.claims) > 0 && newest.endsAt(e.claims[0]):
		return len(e.claims) - 1
	default:
		return len(e.claims)
	}
}

// join adds the entry that follows to an entry. It updates the sums as if that was not held.
func (h *Held) join(e, next *Entry) {
	h.size -= e.Size()
	h.bytes += e.join(next)
	h.size += e.Size()
}

func (h *Held) newest() *Entry {
	if len(h.entries) == 0 {
		return nil
	}
	return &h.entries[len(h.entries)-1]
}

// Join joins the entry with the sequence first to the next one, which has the sequence second, as the
// contributor has (rule Mirror).
func (h *Held) Join(first, second uint64) error {
	i := indexFrom(h.entries, first)
	if i+1 >= len(h.entries) || h.entries[i].Sequence != first || h.entries[i+1].Sequence != second {
		return errNotHeld
	}
	h.own(i)
	next := &h.entries[i+1]
	h.size -= next.Size()
	h.join(&h.entries[i], next)
	h.entries = slices.Delete(h.entries, i+1, i+2)
	return nil
}

// Settle removes entries that are no longer pending, in order of sequence.
func (h *Held) Settle(sequences []uint64) error {
	kept := make([]Entry, 0, max(0, len(h.entries)-len(sequences)))
	size, bytes := h.size, h.bytes
	for i := range h.entries {
		e := &h.entries[i]
		if len(sequences) == 0 || sequences[0] != e.Sequence {
			kept = append(kept, *e)
			continue
		}
		sequences = sequences[1:]
		size -= e.Size()
		bytes -= e.Bytes
	}
	if len(sequences) > 0 {
		return errNotHeld
	}
	h.entries, h.size, h.bytes, h.shared = kept, size, bytes, len(kept) // with their claims
	return nil
}

// Records returns the entries, for a handover or for Adopt. They stay as they are when the Held
// changes.
func (h *Held) Records() []EntryRecord {
	return appendRecords(make([]EntryRecord, 0, len(h.entries)), h.entries)
}

// Bytes returns the approximate memory of the entries.
func (h *Held) Bytes() int64 { return h.bytes }

// Len returns the number of entries.
func (h *Held) Len() int { return len(h.entries) }
