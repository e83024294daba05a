package broadcaster

import (
	"fmt"
	"runtime/debug"
	"sync"

	"k8s.io/klog/v2"

	"github.com/eventd/eventd/pkg/ledger"
	"github.com/eventd/eventd/pkg/occurrence"
)

// Subscriber receives what is published. One goroutine may call Receive or
// Handle; Stop is safe to call from any.
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

// Receive waits for the next occurrence, whose Event may still have to be made:
// see its WithEvent. It returns false when the subscriber was stopped or the
// broadcaster shut down, and the queue is empty.
func (s *Subscriber) Receive() (*occurrence.Occurrence, bool) {
	for {
		o, more := s.queue.pop()
		if o != nil || !more {
			return o, more
		}
		<-s.queue.ready
	}
}

// Handle calls handle for every occurrence until there will be no more. A
// panic of handle is counted, and handle goes on with the next occurrence. The
// first one is logged with its stack.
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
			logger.Error(nil, "Event handler panicked; it goes on with the next Event, and further panics are only counted",
				"subscriber", s.name, "panic", describe(p), "stack", string(debug.Stack()))
		})
	}()
	handle(o)
}

// describe formats what somebody panicked with, whose methods may panic too.
func describe(p any) (text string) {
	defer func() {
		if recover() != nil {
			text = fmt.Sprintf("a %T that cannot be formatted", p)
		}
	}()
	return fmt.Sprint(p)
}

// Stop ends the subscription: nothing more is queued, and Receive returns what
// was queued before and then false. Publishers that wait for room go on, and
// what they had is dropped. The subscriber's metrics are unregistered. Stop
// does not wait.
func (s *Subscriber) Stop() {
	s.broadcaster.remove(s)
	s.queue.close()
	s.metrics.unregister()
}
