package sink

import (
	"container/heap"
	"time"
)

// ages is a heap of times, the earliest first, so that a gauge reads the longest age without
// a scan of all series. It is not safe for concurrent use; the sink's mutex guards it.
type ages []*age

// age is one element. The zero value is in no heap.
type age struct {
	since    time.Time
	position int // from 1 on; 0 if it is in no heap
}

var _ heap.Interface = &ages{}

// update adds or moves an element.
func (h *ages) update(a *age, since time.Time) {
	switch {
	case a.position == 0:
		a.since = since
		heap.Push(h, a)
	case !a.since.Equal(since):
		a.since = since
		heap.Fix(h, a.position-1)
	}
}

// remove removes an element, if it is in the heap.
func (h *ages) remove(a *age) {
	if a.position > 0 {
		heap.Remove(h, a.position-1)
	}
}

// longest returns the time since the earliest element, 0 if there is none or if it lies in
// the future.
func (h ages) longest(now time.Time) time.Duration {
	if len(h) == 0 {
		return 0
	}
	return max(0, now.Sub(h[0].since))
}

func (h ages) Len() int           { return len(h) }
func (h ages) Less(i, k int) bool { return h[i].since.Before(h[k].since) }

func (h ages) Swap(i, k int) {
	h[i], h[k] = h[k], h[i]
	h[i].position, h[k].position = i+1, k+1
}

// Push implements heap.Interface.
func (h *ages) Push(x any) {
	a := x.(*age)
	*h = append(*h, a)
	a.position = len(*h)
}

// Pop implements heap.Interface.
func (h *ages) Pop() any {
	last := len(*h) - 1
	a := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	a.position = 0
	return a
}
