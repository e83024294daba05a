package broadcaster

import "github.com/eventd/eventd/pkg/occurrence"

// ring is a double-ended queue in a slice that grows.
type ring struct {
	slots  []slot
	start  int // of the oldest
	length int
}

// slot has an occurrence and its number in the order of arrival.
type slot struct {
	occurrence *occurrence.Occurrence
	number     uint64
}

// initialSlots is the number of slots of a ring when it is first used.
const initialSlots = 8

// append adds a slot as the newest. There must be fewer than capacity.
func (r *ring) append(s slot, capacity int) {
	if r.length == len(r.slots) {
		grown := make([]slot, min(max(2*r.length, initialSlots), capacity))
		n := copy(grown, r.slots[r.start:])
		copy(grown[n:], r.slots[:r.start])
		r.slots, r.start = grown, 0
	}
	*r.at(r.length) = s
	r.length++
}

// first returns the oldest slot; there must be one.
func (r *ring) first() *slot { return &r.slots[r.start] }

// removeFirst removes the oldest occurrence; there must be one.
func (r *ring) removeFirst() *occurrence.Occurrence {
	s := r.first()
	o := s.occurrence
	*s = slot{}
	r.length--
	if r.start++; r.start == len(r.slots) {
		r.start = 0
	}
	return o
}

// removeLast removes the newest occurrence; there must be one.
func (r *ring) removeLast() *occurrence.Occurrence {
	r.length--
	s := r.at(r.length)
	o := s.occurrence
	*s = slot{}
	return o
}

// at returns the slot at an index from the oldest.
func (r *ring) at(i int) *slot {
	if i += r.start; i >= len(r.slots) {
		i -= len(r.slots)
	}
	return &r.slots[i]
}
