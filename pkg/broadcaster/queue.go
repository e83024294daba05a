package broadcaster

import (
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/pkg/occurrence"
)

// queue is a bounded first-in-first-out queue. Every operation takes constant
// time, but for the growth of its slots.
//
// Its slots are linked in the order of arrival, and those with a Normal
// occurrence also among themselves, so that the newest Normal one can be taken
// from the middle when a Warning needs its place.
//
// It has no shares for namespaces or users, since nobody can fill it while its
// subscriber takes what comes. The correlator in front of a sink waits for nothing. In
// a daemon each queued occurrence belongs to a request in flight: the next ones of a
// client come when those are answered, and that is after they have left the queue, or
// after a minute. By default 1,000 requests may be in flight, and they have shares in
// the intake; the queue has 32,768 slots. In a library all that is queued is one
// process's own.
type queue struct {
	mu     sync.Mutex
	room   sync.Cond // signalled when there may be room, broadcast at close
	all    list
	normal list
	slots  []slot // grows up to capacity, and goes when the queue is closed and empty
	free   int    // first of the unused slots, linked by all.next
	length int
	weight int64
	closed bool
	// awaited is set when the queue was found empty: only then is there anybody
	// to wake.
	awaited bool

	capacity int
	policy   Policy
	// ready has an element when the queue, after it was found empty, may have
	// become non-empty or closed.
	ready chan struct{}
}

// slot holds one occurrence, with its neighbours in both orders.
type slot struct {
	occurrence  *occurrence.Occurrence
	all, normal links
}

// links are slot numbers, or none.
type links struct{ previous, next int }

// list is the ends of a linked list of slots.
type list struct{ first, last int }

const none = -1

func newQueue(capacity int, policy Policy) *queue {
	q := &queue{
		all: list{none, none}, normal: list{none, none}, free: none,
		capacity: capacity, policy: policy, ready: make(chan struct{}, 1),
	}
	q.room.L = &q.mu
	return q
}

// push takes the occurrence or tells why it did not. Under the drop policy a
// Warning may have displaced an occurrence.
func (q *queue) push(o *occurrence.Occurrence) (displaced *occurrence.Occurrence, refused occurrence.Reason) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.policy == WaitWhenFull && q.length == q.capacity && !q.closed {
		q.room.Wait()
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

// pop returns the oldest occurrence, or nil and whether there will be more.
func (q *queue) pop() (o *occurrence.Occurrence, more bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.length == 0 {
		q.awaited = true
		return nil, !q.closed
	}
	o = q.remove(q.all.first)
	q.release()
	q.room.Signal()
	return o, true
}

// close takes nothing more; what is queued can still be popped.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.release()
	q.room.Broadcast()
	q.wake()
}

// release lets go of the slots when nothing will ever be in them again. Recorders
// may hold on to the queue for as long as the process runs.
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

// isNormal: everything that is not a Warning makes room for one.
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
	q.slots[i].occurrence = o
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

// unlink takes slot i out of a list.
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
