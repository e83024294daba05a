package fairstore

import "container/heap"

// group has the ring of a group's records, the newest one first.
type group struct {
	id       uint32
	name     string
	newest   slotID // 0 if the group is empty
	slots    int
	added    uint64 // when the last record was added
	position int    // in the heap
}

// enter returns the group with a name, a new one if there is none, to which a record is added.
func (s *Store) enter(name string) *group {
	s.now++
	g := s.groups[name]
	if g == nil {
		g = &group{name: name, id: s.newID()}
		s.byID[g.id] = g
		s.groups[name] = g
		heap.Push(&s.heaviest, g)
	}
	g.added = s.now
	return g
}

// newID returns an ID that is not in use.
func (s *Store) newID() uint32 {
	if n := len(s.unusedIDs); n > 0 {
		id := s.unusedIDs[n-1]
		s.unusedIDs = s.unusedIDs[:n-1]
		return id
	}
	s.byID = append(s.byID, nil)
	return uint32(len(s.byID) - 1)
}

// leave removes a group without records.
func (s *Store) leave(g *group) {
	heap.Remove(&s.heaviest, g.position)
	delete(s.groups, g.name)
	s.byID[g.id] = nil
	s.unusedIDs = append(s.unusedIDs, g.id)
}

func (g *group) link(s *Store, id slotID) {
	added := s.slot(id)
	if g.newest == 0 {
		added.setPrev(id)
		added.setNext(id)
	} else {
		first := s.slot(g.newest)
		oldest := first.prev()
		added.setPrev(oldest)
		added.setNext(g.newest)
		s.slot(oldest).setNext(id)
		first.setPrev(id)
	}
	g.newest = id
}

func (g *group) unlink(s *Store, id slotID) {
	prev, next := s.slot(id).prev(), s.slot(id).next()
	switch {
	case next == id:
		g.newest = 0
	case g.newest == id:
		g.newest = next
	}
	s.slot(prev).setNext(next)
	s.slot(next).setPrev(prev)
}

// groupHeap implements heap.Interface. The group that uses most is first; among those that use as
// much, the one to which nothing was added for longest.
type groupHeap []*group

func (h groupHeap) Len() int { return len(h) }

func (h groupHeap) Less(i, j int) bool {
	if h[i].slots != h[j].slots {
		return h[i].slots > h[j].slots
	}
	return h[i].added < h[j].added
}

func (h groupHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].position, h[j].position = i, j
}

// Push implements heap.Interface.
func (h *groupHeap) Push(x any) {
	g := x.(*group)
	g.position = len(*h)
	*h = append(*h, g)
}

// Pop implements heap.Interface.
func (h *groupHeap) Pop() any {
	last := len(*h) - 1
	g := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return g
}
