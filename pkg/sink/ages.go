package sink

import (
	"time"

	"github.com/eventd/eventd/internal/minheap"
)

// ages has times, the earliest first, so that a gauge reads the longest age without a scan of
// all series. It is not safe for concurrent use; the sink's mutex guards it.
type ages struct{ minheap.Heap[*age] }

// age is one element. The zero value is in no heap.
type age struct {
	minheap.Place
	since time.Time
}

// Before implements minheap.Element.
func (a *age) Before(other *age) bool { return a.since.Before(other.since) }

// update adds or moves an element.
func (h *ages) update(a *age, since time.Time) {
	a.since = since
	h.Fix(a)
}

// longest returns the time since the earliest element, 0 if there is none or if it lies in
// the future.
func (h *ages) longest(now time.Time) time.Duration {
	if h.Len() == 0 {
		return 0
	}
	return max(0, now.Sub(h.First().since))
}
