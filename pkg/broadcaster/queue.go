package broadcaster

import (
	"sync"

	"github.com/eventd/eventd/internal/occurrence"
)

// queue is a bounded first-in-first-out queue whose writers never wait.
type queue struct {
	mu     sync.Mutex
	ring   []*occurrence.Occurrence // grows up to capacity, never shrinks
	head   int
	length int
	weight int64
	closed bool

	capacity int
	// ready has an element when the queue may have become non-empty or closed.
	ready chan struct{}
}

func newQueue(capacity int) *queue {
	return &queue{capacity: capacity, ready: make(chan struct{}, 1)}
}

// push tells why it did not take the occurrence.
func (q *queue) push(o *occurrence.Occurrence) occurrence.Reason {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return occurrence.Shutdown
	case q.length == q.capacity:
		return occurrence.QueueFull
	case q.length == len(q.ring):
		q.grow()
	}
	q.ring[(q.head+q.length)%len(q.ring)] = o
	q.length++
	q.weight += o.Weight
	q.wake()
	return occurrence.NoReason
}

func (q *queue) grow() {
	ring := make([]*occurrence.Occurrence, min(q.capacity, max(64, 2*len(q.ring))))
	n := copy(ring, q.ring[q.head:])
	copy(ring[n:], q.ring[:q.head])
	q.ring, q.head = ring, 0
}

// pop returns the oldest occurrence, or nil and whether there will be more.
func (q *queue) pop() (o *occurrence.Occurrence, more bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.length == 0 {
		return nil, !q.closed
	}
	o = q.ring[q.head]
	q.ring[q.head] = nil
	q.head = (q.head + 1) % len(q.ring)
	q.length--
	q.weight -= o.Weight
	return o, true
}

// close takes nothing more; what is queued can still be popped.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.wake()
}

func (q *queue) wake() {
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

func (q *queue) len() (length int, weight int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.length, q.weight
}
