package fairlru

import "container/heap"

// group has the ring of a group's entries.
type group[K, G comparable, V any] struct {
	key    G
	newest *entry[K, G, V] // nil if the group is empty
	weight int64
	index  int // in the heap
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

// groupHeap implements heap.Interface. The heaviest group is first; among groups of equal
// weight, the one whose oldest entry was least recently used.
type groupHeap[K, G comparable, V any] []*group[K, G, V]

// top returns the first group. The heap may be outdated, but ranked is never later than the
// last use of the oldest entry. So the first group is correct once its ranked is current.
func (h *groupHeap[K, G, V]) top() *group[K, G, V] {
	for {
		g := (*h)[0]
		if g.ranked == g.oldest().used {
			return g
		}
		g.ranked = g.oldest().used
		heap.Fix(h, 0)
	}
}

func (h groupHeap[K, G, V]) Len() int { return len(h) }

func (h groupHeap[K, G, V]) Less(i, j int) bool {
	if h[i].weight != h[j].weight {
		return h[i].weight > h[j].weight
	}
	return h[i].ranked < h[j].ranked
}

func (h groupHeap[K, G, V]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push implements heap.Interface.
func (h *groupHeap[K, G, V]) Push(x any) {
	g := x.(*group[K, G, V])
	g.index = len(*h)
	*h = append(*h, g)
}

// Pop implements heap.Interface.
func (h *groupHeap[K, G, V]) Pop() any {
	last := len(*h) - 1
	g := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return g
}
