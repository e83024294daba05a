// Package broadcaster carries occurrences from recorders to subscribers, without
// blocking the recorders.
//
// Publish is one short critical section per subscriber and does no I/O. Each subscriber
// has its own bounded queue, so a slow subscriber does not affect others. An occurrence
// that does not fit is dropped and counted; a Warning displaces the newest queued Normal
// occurrence instead. Publish blocks only for subscribers with the policy WaitWhenFull.
//
// After Shutdown, subscribers receive what is queued, and Publish only counts. The
// broadcaster starts no goroutines.
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

// ErrShutdown is returned by Subscribe after Shutdown.
var ErrShutdown = errors.New("broadcaster is shut down")

// Policy determines what happens to an occurrence when a subscriber's queue is full. The
// values correspond to DropIfChannelFull and WaitIfChannelFull of apimachinery's watch.
type Policy uint8

const (
	// DropWhenFull drops the new occurrence and counts it. A Warning displaces the
	// newest queued Normal occurrence instead, if there is one.
	DropWhenFull Policy = iota
	// WaitWhenFull blocks Publish until the subscriber receives. If the subscriber
	// or the broadcaster stops first, the occurrence is dropped. No occurrence
	// displaces another. Subscribers with DropWhenFull are served first.
	WaitWhenFull
)

// Broadcaster is safe for use by many goroutines. Make it with New.
type Broadcaster struct {
	noSink *ledger.Ledger // counts what is published while no subscriber has a ledger
	closed atomic.Bool

	mu          sync.Mutex // serializes changes of subscribers
	subscribers atomic.Pointer[[]*Subscriber]
}

// New returns a broadcaster. What is published while no subscriber has a ledger is
// counted in noSink, as dropped.
func New(noSink *ledger.Ledger) *Broadcaster {
	b := &Broadcaster{noSink: noSink}
	b.subscribers.Store(new([]*Subscriber))
	return b
}

// Publish adds o to the queue of every subscriber. From then on o is shared, and must
// not be changed.
func (b *Broadcaster) Publish(o *occurrence.Occurrence) {
	counted := false
	for _, s := range *b.subscribers.Load() {
		counted = counted || s.ledger != nil
		s.offer(o)
	}
	if counted {
		return
	}
	reason := occurrence.NoSink
	if b.closed.Load() {
		reason = occurrence.Shutdown
	}
	drop(b.noSink, o, reason)
}

// Refuse counts an occurrence of which no Event could be built.
func (b *Broadcaster) Refuse(reason occurrence.Reason) {
	o := &occurrence.Occurrence{Weight: 1}
	counted := false
	for _, s := range *b.subscribers.Load() {
		if s.ledger != nil {
			counted = true
			drop(s.ledger, o, reason)
		}
	}
	if !counted {
		drop(b.noSink, o, reason)
	}
}

// drop records an occurrence that no queue receives, and settles it as dropped.
func drop(l *ledger.Ledger, o *occurrence.Occurrence, reason occurrence.Reason) {
	l.Record(o)
	l.Settle(o, occurrence.Settlement{Outcome: occurrence.Dropped, Reason: reason})
}

// SubscribeOptions describe a subscriber.
type SubscribeOptions struct {
	// Name of the subscriber in metrics.
	Name string
	// Capacity of its queue, in occurrences; greater than 0.
	Capacity int
	// WhenFull determines what happens when the queue is full.
	WhenFull Policy
	// Ledger counts the occurrences of a sink; nil for a watcher.
	Ledger *ledger.Ledger
	// Registerer registers the subscriber's metrics; nil leaves them unregistered.
	Registerer prometheus.Registerer
}

// Subscribe adds a subscriber, which receives what is published from now on. An error
// is ErrShutdown, of the options, or of registering metrics.
func (b *Broadcaster) Subscribe(o SubscribeOptions) (*Subscriber, error) {
	if o.Capacity <= 0 {
		return nil, fmt.Errorf("subscriber options: Capacity must be greater than 0, not %d", o.Capacity)
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
	// Subscribers that may block Publish come last, so that they do not delay others.
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

// Shutdown closes all queues, and does not wait. Subscribers still receive what is
// queued.
func (b *Broadcaster) Shutdown() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed.Store(true)
	for _, s := range *b.subscribers.Load() {
		s.queue.close()
	}
}
