package broadcaster

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/internal/notify"
	"github.com/eventd/eventd/pkg/occurrence"
)

// queue is a bounded FIFO queue. Every operation takes constant time, except when a ring
// grows.
//
// Normal occurrences and Warnings are in a ring each, so that a Warning can displace the
// newest Normal one. Slots are numbered in the order of arrival, so pop takes the older of the
// two first slots.
//
// The queue has no shares for namespaces or users. In the daemon, each queued occurrence
// belongs to a report in flight, or to an Event of a batch in flight. The intake limits
// both per user (ServerOptions.MaxInFlight and maxBatched in pkg/intake), and their defaults
// are together less than the capacity. In a library, all occurrences are those of one process.
type queue struct {
	mu       sync.Mutex
	notFull  sync.Cond // signalled by pop, broadcast by close
	normal   ring
	warnings ring
	pushed   uint64 // number of the newest
	weight   int64
	closed   bool
	// awaited is set when pop found the queue empty: only then does anything wait.
	awaited bool

	capacity int
	policy   Policy
	// ready has an element when the queue, once found empty, may have become
	// non-empty or closed.
	ready chan struct{}
}

func newQueue(capacity int, policy Policy) *queue {
	q := &queue{capacity: capacity, policy: policy, ready: make(chan struct{}, 1)}
	q.notFull.L = &q.mu
	return q
}

// push adds an occurrence, or returns the reason why it did not. With DropWhenFull, a
// Warning may displace another occurrence.
func (q *queue) push(o *occurrence.Occurrence) (displaced *occurrence.Occurrence, refused occurrence.Reason) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.policy == WaitWhenFull && q.length() == q.capacity && !q.closed {
		q.notFull.Wait()
	}
	switch {
	case q.closed:
		return nil, occurrence.Shutdown
	case q.length() == q.capacity:
		if isNormal(o) || q.normal.length == 0 {
			return nil, occurrence.QueueFull
		}
		displaced = q.normal.removeLast()
		q.weight -= displaced.Weight
	}
	q.pushed++
	q.ringOf(o).append(slot{o, q.pushed}, q.capacity)
	q.weight += o.Weight
	if q.awaited {
		q.awaited = false
		notify.Wake(q.ready)
	}
	return displaced, occurrence.NoReason
}

// pop removes and returns the oldest occurrence. If there is none, more reports whether
// the queue is still open.
func (q *queue) pop() (o *occurrence.Occurrence, more bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.length() == 0 {
		q.awaited = true
		return nil, !q.closed
	}
	o = q.older().removeFirst()
	q.weight -= o.Weight
	q.release()
	q.notFull.Signal()
	return o, true
}

// close makes push refuse; what is queued can still be popped.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.release()
	q.notFull.Broadcast()
	notify.Wake(q.ready)
}

// release frees the rings of a queue that is closed and empty: recorders may reference
// the queue for as long as the process runs.
func (q *queue) release() {
	if q.closed && q.length() == 0 {
		q.normal, q.warnings = ring{}, ring{}
	}
}

func (q *queue) length() int { return q.normal.length + q.warnings.length }

func (q *queue) len() (length int, weight int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.length(), q.weight
}

// age returns how long ago the oldest occurrence was recorded, 0 if there is none.
func (q *queue) age() time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.length() == 0 {
		return 0
	}
	return time.Since(q.older().first().occurrence.Recorded)
}

// older returns the ring whose first occurrence is the oldest of the queue, which must not be
// empty.
func (q *queue) older() *ring {
	if q.warnings.length == 0 || q.normal.length > 0 && q.normal.first().number < q.warnings.first().number {
		return &q.normal
	}
	return &q.warnings
}

func (q *queue) ringOf(o *occurrence.Occurrence) *ring {
	if isNormal(o) {
		return &q.normal
	}
	return &q.warnings
}

// isNormal reports whether a Warning may displace o: anything but a Warning.
func isNormal(o *occurrence.Occurrence) bool {
	return o.Type() != corev1.EventTypeWarning
}
