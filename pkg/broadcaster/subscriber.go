package broadcaster

import (
	"fmt"
	"runtime/debug"
	"sync"

	"k8s.io/klog/v2"

	"github.com/eventd/eventd/pkg/ledger"
	"github.com/eventd/eventd/pkg/occurrence"
)

// Subscriber receives what is published. One goroutine at a time may call Receive or
// Handle; Stop is safe for use by many. It starts no goroutine.
type Subscriber struct {
	broadcaster *Broadcaster
	name        string
	queue       *queue
	ledger      *ledger.Ledger
	metrics     metrics
	panicked    sync.Once
}

func (s *Subscriber) offer(o *occurrence.Occurrence) {
	if s.ledger != nil {
		s.ledger.Record(o)
	}
	displaced, refused := s.queue.push(o)
	switch {
	case refused != occurrence.NoReason:
		s.drop(o, refused)
	case displaced != nil:
		s.drop(displaced, occurrence.QueueFull)
	}
}

func (s *Subscriber) drop(o *occurrence.Occurrence, reason occurrence.Reason) {
	s.metrics.dropped.Inc()
	if s.ledger != nil {
		s.ledger.Settle(o, occurrence.Settlement{Outcome: occurrence.Dropped, Reason: reason})
	}
}

// Receive waits for the next occurrence. Its Event may be nil: see WithEvent. It returns
// false when the queue is empty after Stop or the broadcaster's Shutdown.
func (s *Subscriber) Receive() (*occurrence.Occurrence, bool) {
	for {
		o, more := s.queue.pop()
		if o != nil || !more {
			return o, more
		}
		<-s.queue.ready
	}
}

// Handle calls handle for every occurrence, until Receive returns false. Panics of handle
// are recovered and counted; the first is logged with its stack.
func (s *Subscriber) Handle(logger klog.Logger, handle func(*occurrence.Occurrence)) {
	for {
		o, ok := s.Receive()
		if !ok {
			return
		}
		s.guarded(logger, handle, o)
	}
}

func (s *Subscriber) guarded(logger klog.Logger, handle func(*occurrence.Occurrence), o *occurrence.Occurrence) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		s.metrics.panics.Inc()
		s.panicked.Do(func() {
			logger.Error(nil, "Event handler panicked; it continues with the next Event, and further panics are only counted",
				"subscriber", s.name, "panic", describe(p), "stack", string(debug.Stack()))
		})
	}()
	handle(o)
}

// describe formats the value of a panic, whose methods may panic too.
func describe(p any) (text string) {
	defer func() {
		if recover() != nil {
			text = fmt.Sprintf("a %T that cannot be formatted", p)
		}
	}()
	return fmt.Sprint(p)
}

// Stop ends the subscription, and does not wait. Receive returns what is queued, and then
// false. Publishers that wait for the queue return, and their occurrences are dropped.
// The subscriber's metrics are unregistered.
func (s *Subscriber) Stop() {
	s.broadcaster.remove(s)
	s.queue.close()
	s.metrics.unregister()
}
