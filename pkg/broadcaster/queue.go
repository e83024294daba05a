package broadcaster

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/pkg/occurrence"
)

// queue is a bounded FIFO queue. Every operation takes constant time, except when the
// slots grow.
//
// The slots are linked in the order of arrival. Those with a Normal occurrence are also
// linked among themselves, so that a Warning can displace the newest Normal one.
//
// The queue has no shares for namespaces or users. In the daemon, each queued occurrence
// belongs to a request in flight, and the intake limits those per user: 1,000 by default,
// for 32,768 slots. In a library, all occurrences are those of one process.
type queue struct {
	mu      sync.Mutex
	notFull sync.Cond // signalled by pop, broadcast by close
	all     list
	normal  list
	slots   []slot // grows up to capacity; released when the queue is closed and empty
	free    int    // first of the unused slots, linked by all.next
	length  int
	weight  int64
	closed  bool
	// awaited is set when pop found the queue empty: only then does anything wait.
	awaited bool

	capacity int
	policy   Policy
	// ready has an element when the queue, once found empty, may have become
	// non-empty or closed.
	ready chan struct{}
}

// slot holds one occurrence, with its neighbours in both orders.
type slot struct {
	occurrence  *occurrence.Occurrence
	queued      time.Duration // since epoch
	all, normal links
}

// epoch is what slots count from: a duration is a third of a time, and there may be 32,768 slots.
var epoch = time.Now()

// links are slot numbers, or none.
type links struct{ previous, next int }

// list has the first and last slot of a linked list.
type list struct{ first, last int }

const none = -1

func newQueue(capacity int, policy Policy) *queue {
	q := &queue{
		all: list{none, none}, normal: list{none, none}, free: none,
		capacity: capacity, policy: policy, ready: make(chan struct{}, 1),
	}
	q.notFull.L = &q.mu
	return q
}

// push adds an occurrence, or returns the reason why it did not. With DropWhenFull, a
// Warning may displace another occurrence.
func (q *queue) push(o *occurrence.Occurrence) (displaced *occurrence.Occurrence, refused occurrence.Reason) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.policy == WaitWhenFull && q.length == q.capacity && !q.closed {
		q.notFull.Wait()
	}
	switch {
	case q.closed:
		return nil, occurrence.Shutdown
	case q.length == q.capacity:
		if isNormal(o) || q.normal.last == none {
			return nil, occurrence.QueueFull
		}
		displaced = q.remove(q.normal.last)
	}
	q.append(o)
	if q.awaited {
		q.awaited = false
		q.wake()
	}
	return displaced, occurrence.NoReason
}

// pop removes and returns the oldest occurrence. If there is none, more reports whether
// the queue is still open.
func (q *queue) pop() (o *occurrence.Occurrence, more bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.length == 0 {
		q.awaited = true
		return nil, !q.closed
	}
	o = q.remove(q.all.first)
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
	q.wake()
}

// release frees the slots of a queue that is closed and empty: recorders may reference
// the queue for as long as the process runs.
func (q *queue) release() {
	if q.closed && q.length == 0 {
		q.slots, q.free = nil, none
	}
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

// age returns for how long the oldest occurrence has been queued, 0 if there is none.
func (q *queue) age() time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.length == 0 {
		return 0
	}
	return time.Since(epoch) - q.slots[q.all.first].queued
}

// isNormal reports whether a Warning may displace o: anything but a Warning.
func isNormal(o *occurrence.Occurrence) bool {
	return o.Type() != corev1.EventTypeWarning
}

func (q *queue) append(o *occurrence.Occurrence) {
	i := q.free
	if i == none {
		i = len(q.slots)
		q.slots = append(q.slots, slot{})
	} else {
		q.free = q.slots[i].all.next
	}
	q.slots[i].occurrence, q.slots[i].queued = o, time.Since(epoch)
	q.link(&q.all, i, (*slot).allLinks)
	if isNormal(o) {
		q.link(&q.normal, i, (*slot).normalLinks)
	}
	q.length++
	q.weight += o.Weight
}

func (q *queue) remove(i int) *occurrence.Occurrence {
	o := q.slots[i].occurrence
	q.unlink(&q.all, i, (*slot).allLinks)
	if isNormal(o) {
		q.unlink(&q.normal, i, (*slot).normalLinks)
	}
	q.slots[i] = slot{all: links{next: q.free}}
	q.free = i
	q.length--
	q.weight -= o.Weight
	return o
}

func (s *slot) allLinks() *links    { return &s.all }
func (s *slot) normalLinks() *links { return &s.normal }

// link appends slot i to a list.
func (q *queue) link(l *list, i int, of func(*slot) *links) {
	*of(&q.slots[i]) = links{previous: l.last, next: none}
	if l.last == none {
		l.first = i
	} else {
		of(&q.slots[l.last]).next = i
	}
	l.last = i
}

// unlink removes slot i from a list.
func (q *queue) unlink(l *list, i int, of func(*slot) *links) {
	at := *of(&q.slots[i])
	if at.previous == none {
		l.first = at.next
	} else {
		of(&q.slots[at.previous]).next = at.next
	}
	if at.next == none {
		l.last = at.previous
	} else {
		of(&q.slots[at.next]).previous = at.previous
	}
}
