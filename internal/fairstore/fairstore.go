// Package fairstore implements a bounded store of short records, which belong to groups, such as
// namespaces. A full store evicts the oldest record of the group that uses most. So a group that
// adds without end, and has its share, replaces its own records.
//
// internal/fairlru does the same for values that stay in it while they are used. A record is taken out
// to be used, and added again. One of up to 34 bytes takes 52 in all, and nothing of it is a pointer,
// so the garbage collector reads none of it. A longer one takes 48 more for each 45 bytes.
package fairstore

import (
	"container/heap"
	"encoding/binary"
	"math/bits"
)

const (
	// MaxLimit is the highest limit, 0.8 GiB. The number of a slot has 24 bits, and for a moment a record
	// has slots beyond the limit. So records must be shorter than 2 MiB.
	MaxLimit = 1<<24 - 1<<16
	// BytesPerSlot is the memory of a slot and of its part of the index.
	BytesPerSlot = 52

	// groupSlots is what each group but the first costs, as a number of slots: its struct, name,
	// and elements of the maps and slices.
	groupSlots = 4
	// chunkSlots is the number of slots that are allocated at once.
	chunkSlots = 256
)

// Store is a bounded map of keys to records. Make it with New. It is not safe for use by several
// goroutines.
//
// Keys must be hashes that nobody else can predict: which of two with the same hash is there is
// then up to chance. Only their highest 40 bits are stored and compared: of 200,000 records, two have
// the same ones in one of 50 stores.
//
// Methods take O(1), those that change it O(log g) with g groups.
type Store struct {
	limit, used int // in slots; used is without what groups cost
	entries     int
	chunks      []*[chunkSlots]slot
	unused      slotID // the first of those that are not in use; they are linked by next
	// index is a hash table with linear probing of the first slot of each record.
	index  []number
	groups map[string]*group
	byID   []*group // nil if the ID is not in use
	// unusedIDs are indexes of byID.
	unusedIDs []uint32
	heaviest  groupHeap
	now       uint64 // counts additions
	record    []byte // buffer of Take
}

// New returns a store of a number of slots, from 1 to MaxLimit. It allocates the index, of 4 bytes
// for each, and the slots as they are needed.
func New(limit int) *Store {
	limit = min(limit, MaxLimit)
	// The first slot is none. At most four fifths of the index are in use, and one more during Add.
	return &Store{limit: limit, index: make([]number, limit+limit/4+2), groups: make(map[string]*group)}
}

// Len returns the number of records.
func (s *Store) Len() int { return s.entries }

// Has reports whether there is a record of a key.
func (s *Store) Has(key uint64) bool {
	_, id := s.find(key)
	return id != 0
}

// Take removes and returns the record of a key, with zeros behind it. It is valid until the next
// call.
func (s *Store) Take(key uint64) (record []byte, ok bool) {
	at, id := s.find(key)
	if id == 0 {
		return nil, false
	}
	head := s.slot(id)
	s.record = append(s.record[:0], head.data()...)
	for next := head.more(); next != 0; {
		part := s.slot(next)
		s.record = append(s.record, part.rest()...)
		next = part.link()
	}
	s.remove(at, id)
	return s.record, true
}

// Add sets the group and the record of a key. While the limit is exceeded, it evicts the oldest
// record of the group that uses most; among groups that use as much, of the one to which nothing
// was added for longest. This may be the new record, if it is longer than all of any group.
func (s *Store) Add(key uint64, groupName string, record []byte) {
	if at, id := s.find(key); id != 0 {
		s.remove(at, id)
	}
	g := s.enter(groupName)
	id, slots := s.write(record)
	head := s.slot(id)
	head.setKey(key)
	head.setGroup(g.id)
	g.link(s, id)
	at, _ := s.find(key)
	s.index[at].set(id)
	s.entries++
	s.charge(g, slots)
	for s.used+groupSlots*(len(s.groups)-1) > s.limit && s.entries > 1 {
		oldest := s.slot(s.heaviest[0].newest).prev()
		at, _ := s.find(s.slot(oldest).key())
		s.remove(at, oldest)
	}
}

// Group returns the number of records of a group. It takes O(n).
func (s *Store) Group(name string) (n int) {
	g := s.groups[name]
	if g == nil {
		return 0
	}
	for id := g.newest; ; n++ {
		if id = s.slot(id).next(); id == g.newest {
			return n + 1
		}
	}
}

// charge adds to what a group uses.
func (s *Store) charge(g *group, slots int) {
	s.used += slots
	g.slots += slots
	heap.Fix(&s.heaviest, g.position)
}

// remove removes the record at a place of the index.
func (s *Store) remove(at int, id slotID) {
	g := s.byID[s.slot(id).group()]
	g.unlink(s, id)
	slots := s.free(id)
	s.entries--
	s.unindex(at)
	if s.charge(g, -slots); g.slots == 0 {
		s.leave(g)
	}
}

// write allocates slots and writes a record to them.
func (s *Store) write(record []byte) (first slotID, slots int) {
	first = s.allocate()
	head := s.slot(first)
	if len(record) <= len(head.data()) {
		copy(head.data(), record)
		return first, 1
	}
	next := s.allocate()
	head.setMore(next)
	record = record[copy(head.data(), record):]
	for slots = 2; ; slots++ {
		part := s.slot(next)
		if record = record[copy(part.rest(), record):]; len(record) == 0 {
			return first, slots
		}
		next = s.allocate()
		part.setLink(next)
	}
}

// allocate returns a slot of zeros.
func (s *Store) allocate() slotID {
	if s.unused == 0 {
		base := slotID(len(s.chunks) * chunkSlots)
		s.chunks = append(s.chunks, new([chunkSlots]slot))
		for i := slotID(chunkSlots); i > 0; i-- {
			if id := base + i - 1; id != 0 {
				s.slot(id).setNext(s.unused)
				s.unused = id
			}
		}
	}
	id := s.unused
	slot := s.slot(id)
	s.unused = slot.next()
	*slot = [slotBytes]byte{}
	return id
}

// free returns the slots of a record to those that are not in use.
func (s *Store) free(id slotID) (slots int) {
	next := s.slot(id).more()
	for {
		slots++
		s.slot(id).setNext(s.unused)
		s.unused = id
		if id = next; id == 0 {
			return slots
		}
		next = s.slot(id).link()
	}
}

// home returns the place in the index at which the search for a key begins.
func (s *Store) home(key uint64) int {
	high, _ := bits.Mul64(key&keyMask, uint64(len(s.index)))
	return int(high)
}

// find returns the place of a key in the index and its slot, or a free place and 0.
func (s *Store) find(key uint64) (at int, id slotID) {
	for at = s.home(key); ; at = s.after(at) {
		if id = s.index[at].get(); id == 0 || s.slot(id).key() == key&keyMask {
			return at, id
		}
	}
}

func (s *Store) after(at int) int {
	if at++; at == len(s.index) {
		return 0
	}
	return at
}

// unindex frees a place of the index. It moves those behind it that are found only past it.
func (s *Store) unindex(at int) {
	for i := s.after(at); s.index[i] != (number{}); i = s.after(i) {
		home := s.home(s.slot(s.index[i].get()).key())
		// The distances are those in a ring.
		if s.distance(home, i) >= s.distance(at, i) {
			s.index[at] = s.index[i]
			at = i
		}
	}
	s.index[at] = number{}
}

func (s *Store) distance(from, to int) int {
	if to < from {
		to += len(s.index)
	}
	return to - from
}

// slotBytes is the size of a slot.
const slotBytes = 48

// slotID is the number of a slot; 0 is none.
type slotID = uint32

// number is a number of 24 bits: that of a slot, or of a group, of which there are fewer.
type number [3]byte

func (n *number) get() uint32  { return uint32(n[0]) | uint32(n[1])<<8 | uint32(n[2])<<16 }
func (n *number) set(v uint32) { n[0], n[1], n[2] = byte(v), byte(v>>8), byte(v>>16) }

// slot is the first slot of a record, or a further one. The first one has its key, its neighbours
// in the ring of its group, the ID of that, and the first part of the record; a further one only
// a part. In both, the last three bytes are the next slot, if there is one.
type slot [slotBytes]byte

const (
	prevAt  = 0 // the key is in the highest 40 bits of the 64 that begin here
	nextAt  = 8
	groupAt = 11
	dataAt  = 14
	linkAt  = slotBytes - 3

	keyMask = ^uint64(1<<24 - 1)
	// hasMore is set in the ID of the group of a record that has further slots. A group takes more than
	// two slots, so no ID has this bit.
	hasMore = 1 << 23
)

func (s *slot) at(at int) *number { return (*number)(s[at:]) }

func (s *slot) key() uint64 { return binary.LittleEndian.Uint64(s[prevAt:]) & keyMask }

func (s *slot) setKey(key uint64) {
	binary.LittleEndian.PutUint64(s[prevAt:], key&keyMask|uint64(s.prev()))
}

func (s *slot) prev() slotID      { return s.at(prevAt).get() }
func (s *slot) setPrev(id slotID) { s.at(prevAt).set(id) }
func (s *slot) next() slotID      { return s.at(nextAt).get() }
func (s *slot) setNext(id slotID) { s.at(nextAt).set(id) }

func (s *slot) hasMore() bool { return s.at(groupAt).get()&hasMore != 0 }

func (s *slot) group() uint32      { return s.at(groupAt).get() &^ hasMore }
func (s *slot) setGroup(id uint32) { s.at(groupAt).set(s.at(groupAt).get()&hasMore | id) }

// more returns the second slot of the record whose first slot it is, 0 if there is none.
func (s *slot) more() slotID {
	if !s.hasMore() {
		return 0
	}
	return s.link()
}

func (s *slot) setMore(id slotID) {
	s.at(groupAt).set(s.at(groupAt).get() | hasMore)
	s.setLink(id)
}

func (s *slot) link() slotID      { return s.at(linkAt).get() }
func (s *slot) setLink(id slotID) { s.at(linkAt).set(id) }

// data returns the part of the record in a first slot.
func (s *slot) data() []byte {
	if !s.hasMore() {
		return s[dataAt:]
	}
	return s[dataAt:linkAt]
}

// rest returns the part of the record in a further slot.
func (s *slot) rest() []byte { return s[:linkAt] }

func (s *Store) slot(id slotID) *slot { return &s.chunks[id/chunkSlots][id%chunkSlots] }
