// Package minheap is container/heap for elements that know their place, so that each can be moved and removed.
package minheap

import "container/heap"

// Place is where an element is in its heap. It is embedded in the element, whose zero value is in none.
type Place struct{ n int } // from 1 on

func (p *Place) place() *int { return &p.n }

// Element is a pointer to a struct with a Place, which is in one heap at a time.
type Element[E any] interface {
	// Before reports whether the element is to be above another one.
	Before(other E) bool
	place() *int
}

// Heap has its least element first. Its zero value is empty. It is not safe for concurrent use.
type Heap[E Element[E]] struct{ elements elements[E] }

// Len returns the number of elements.
func (h *Heap[E]) Len() int { return len(h.elements) }

// Cap returns the number of elements for which it has memory, until it is replaced.
func (h *Heap[E]) Cap() int { return cap(h.elements) }

// First returns the least element, or nil.
func (h *Heap[E]) First() (first E) {
	if len(h.elements) > 0 {
		first = h.elements[0]
	}
	return first
}

// Fix adds an element, or moves it after a change.
func (h *Heap[E]) Fix(e E) {
	if n := *e.place(); n > 0 {
		heap.Fix(&h.elements, n-1)
	} else {
		heap.Push(&h.elements, e)
	}
}

// Remove removes an element, if it is in the heap.
func (h *Heap[E]) Remove(e E) {
	if n := *e.place(); n > 0 {
		heap.Remove(&h.elements, n-1)
	}
}

// elements implements heap.Interface.
type elements[E Element[E]] []E

func (e elements[E]) Len() int           { return len(e) }
func (e elements[E]) Less(i, k int) bool { return e[i].Before(e[k]) }

func (e elements[E]) Swap(i, k int) {
	e[i], e[k] = e[k], e[i]
	*e[i].place(), *e[k].place() = i+1, k+1
}

// Push implements heap.Interface.
func (e *elements[E]) Push(x any) {
	*e = append(*e, x.(E))
	*x.(E).place() = len(*e)
}

// Pop implements heap.Interface.
func (e *elements[E]) Pop() any {
	last := len(*e) - 1
	popped := (*e)[last]
	clear((*e)[last:])
	*e = (*e)[:last]
	*popped.place() = 0
	return popped
}
