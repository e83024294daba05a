package fairlru

import "github.com/eventd/eventd/internal/minheap"

// group has the ring of a group's entries.
type group[K, G comparable, V any] struct {
	minheap.Place
	key    G
	newest *entry[K, G, V] // nil if the group is empty
	weight int64
	// ranked is the last use of the oldest entry, as of the last fix of the heap. A
	// use changes only the entry, and does not fix the heap.
	ranked uint64
}

func (g *group[K, G, V]) oldest() *entry[K, G, V] { return g.newest.prev }

func (g *group[K, G, V]) pushFront(e *entry[K, G, V]) {
	e.group = g
	g.weight += e.weight
	g.link(e)
}

func (g *group[K, G, V]) moveToFront(e *entry[K, G, V]) {
	if g.newest != e {
		g.unlink(e)
		g.link(e)
	}
}

func (g *group[K, G, V]) link(e *entry[K, G, V]) {
	if first := g.newest; first == nil {
		e.prev, e.next = e, e
	} else {
		e.prev, e.next = first.prev, first
		e.prev.next, e.next.prev = e, e
	}
	g.newest = e
}

func (g *group[K, G, V]) unlink(e *entry[K, G, V]) {
	switch {
	case e.next == e:
		g.newest = nil
	case g.newest == e:
		g.newest = e.next
	}
	e.prev.next, e.next.prev = e.next, e.prev
}

// Before implements minheap.Element. The heaviest group is first; among groups of equal
// weight, the one whose oldest entry was least recently used.
func (g *group[K, G, V]) Before(other *group[K, G, V]) bool {
	if g.weight != other.weight {
		return g.weight > other.weight
	}
	return g.ranked < other.ranked
}
