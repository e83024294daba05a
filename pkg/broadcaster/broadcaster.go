// Package broadcaster carries occurrences from recorders to subscribers without
// making a recorder wait.
//
// Publish is one short critical section per subscriber and does no I/O. Each
// subscriber has a bounded queue of its own, so a slow one loses its own
// occurrences and nobody else's. What does not fit is counted as dropped; a
// Warning that finds the queue full takes the place of the newest Normal
// occurrence in it. Only a subscriber that asks for WaitWhenFull makes Publish
// wait, until there is room in its queue or it is stopped.
//
// After Shutdown publishing is a counted no-op, and subscribers receive what was
// queued before. The broadcaster starts no goroutines.
package broadcaster

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/eventd/eventd/pkg/ledger"
	"github.com/eventd/eventd/pkg/occurrence"
)

// DefaultCapacity of a subscriber's queue: more than what a storm of 20,000 brings
// before its handler has had a turn on a machine that is busy with something else.
// An occurrence of a recorder takes about half a KiB, so a full queue holds about
// 16 MiB; with messages as long as they may be, 16 KiB each, 512 MiB.
const DefaultCapacity = 1 << 15

// ErrShutdown is returned to those who subscribe too late.
var ErrShutdown = errors.New("broadcaster is shut down")

// Policy is what becomes of an occurrence when a subscriber's queue is full.
// They are client-go's DropIfChannelFull and WaitIfChannelFull.
type Policy uint8

const (
	// DropWhenFull drops and counts what does not fit. A Warning displaces the
	// newest Normal occurrence instead, as if it had come just before it; among
	// Warnings alone, and for Normal ones, the newcomer is dropped.
	DropWhenFull Policy = iota
	// WaitWhenFull makes Publish wait for room in this subscriber's queue. The
	// wait ends when the subscriber receives, when it is stopped, or when the
	// broadcaster is shut down; in the latter two the occurrence is dropped. No
	// occurrence displaces another. Subscribers that do not wait are served
	// first.
	WaitWhenFull
)

// Broadcaster is safe for use by many goroutines. Make it with New.
type Broadcaster struct {
	// unsunk counts what is published while nobody would write it.
	unsunk *ledger.Ledger
	closed atomic.Bool

	mu          sync.Mutex // serialises changes of subscribers
	subscribers atomic.Pointer[[]*Subscriber]
}

// New returns a broadcaster. What is published while no subscriber has a ledger
// is counted in unsunk, as dropped.
func New(unsunk *ledger.Ledger) *Broadcaster {
	b := &Broadcaster{unsunk: unsunk}
	b.subscribers.Store(new([]*Subscriber))
	return b
}

// Publish hands o to every subscriber. It waits for those with WaitWhenFull
// only. From then on o is shared and must not be changed.
func (b *Broadcaster) Publish(o *occurrence.Occurrence) {
	sunk := false
	for _, s := range *b.subscribers.Load() {
		sunk = sunk || s.ledger != nil
		s.offer(o)
	}
	if sunk {
		return
	}
	reason := occurrence.NoSink
	if b.closed.Load() {
		reason = occurrence.Shutdown
	}
	b.unsunk.Record(o)
	b.unsunk.Settle(o, occurrence.Settlement{Outcome: occurrence.Dropped, Reason: reason})
}

// Refuse counts an occurrence that did not become an Event, for a reason.
func (b *Broadcaster) Refuse(reason occurrence.Reason) {
	o := &occurrence.Occurrence{Weight: 1}
	s := occurrence.Settlement{Outcome: occurrence.Dropped, Reason: reason}
	sunk := false
	for _, subscriber := range *b.subscribers.Load() {
		if l := subscriber.ledger; l != nil {
			sunk = true
			l.Record(o)
			l.Settle(o, s)
		}
	}
	if !sunk {
		b.unsunk.Record(o)
		b.unsunk.Settle(o, s)
	}
}

// SubscribeOptions say who subscribes.
type SubscribeOptions struct {
	// Name of the subscriber in metrics.
	Name string
	// Capacity of its queue, in occurrences.
	Capacity int
	// WhenFull says what becomes of what does not fit.
	WhenFull Policy
	// Ledger counts what a sink takes on; nil for those that only watch.
	Ledger *ledger.Ledger
	// Registerer takes the subscriber's metrics; nil leaves them unregistered.
	Registerer prometheus.Registerer
}

// Subscribe adds a subscriber, which gets what is published from now on.
func (b *Broadcaster) Subscribe(o SubscribeOptions) (*Subscriber, error) {
	if o.Capacity <= 0 {
		return nil, fmt.Errorf("queue capacity must be greater than 0, not %d", o.Capacity)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed.Load() {
		return nil, ErrShutdown
	}
	s := &Subscriber{broadcaster: b, name: o.Name, queue: newQueue(o.Capacity, o.WhenFull), ledger: o.Ledger}
	if err := s.metrics.register(s.queue, o); err != nil {
		return nil, err
	}
	next := append(slices.Clone(*b.subscribers.Load()), s)
	// Those that may make Publish wait come last, so that they delay nobody else.
	slices.SortStableFunc(next, func(x, y *Subscriber) int { return cmp.Compare(x.queue.policy, y.queue.policy) })
	b.subscribers.Store(&next)
	return s, nil
}

func (b *Broadcaster) remove(s *Subscriber) {
	b.mu.Lock()
	defer b.mu.Unlock()
	next := slices.DeleteFunc(slices.Clone(*b.subscribers.Load()), func(other *Subscriber) bool { return other == s })
	b.subscribers.Store(&next)
}

// Shutdown takes nothing more and returns at once. Subscribers receive what was
// queued before, and then the end.
func (b *Broadcaster) Shutdown() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed.Store(true)
	for _, s := range *b.subscribers.Load() {
		s.queue.close()
	}
}
