package broadcaster

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/eventd/eventd/internal/ledger"
	"github.com/eventd/eventd/internal/occurrence"
)

// Subscriber receives what is published. One goroutine may call Receive; Stop
// is safe to call from any.
type Subscriber struct {
	broadcaster *Broadcaster
	queue       *queue
	ledger      *ledger.Ledger
	dropped     prometheus.Counter
}

func (s *Subscriber) offer(o *occurrence.Occurrence) {
	if s.ledger != nil {
		s.ledger.Record(o)
	}
	reason := s.queue.push(o)
	if reason == occurrence.NoReason {
		return
	}
	s.dropped.Inc()
	if s.ledger != nil {
		s.ledger.Settle(o, occurrence.Settlement{Outcome: occurrence.Dropped, Reason: reason})
	}
}

// Receive waits for the next occurrence. It returns false when the subscriber
// was stopped or the broadcaster shut down, and the queue is empty.
func (s *Subscriber) Receive() (*occurrence.Occurrence, bool) {
	for {
		o, more := s.queue.pop()
		if o != nil || !more {
			return o, more
		}
		<-s.queue.ready
	}
}

// Stop ends the subscription: nothing more is queued, and Receive returns what
// was queued before and then false. It does not wait.
func (s *Subscriber) Stop() {
	s.broadcaster.remove(s)
	s.queue.close()
}

func (s *Subscriber) register(o SubscribeOptions) error {
	labels := prometheus.Labels{"subscriber": o.Name}
	s.dropped = prometheus.NewCounter(prometheus.CounterOpts{
		Name:        "eventd_broadcaster_dropped_total",
		Help:        "Occurrences that a subscriber's queue had no room for, or that came after the shutdown.",
		ConstLabels: labels,
	})
	if o.Registerer == nil {
		return nil
	}
	collectors := []prometheus.Collector{
		s.dropped,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name:        "eventd_broadcaster_queue_length",
			Help:        "Occurrences that wait for a subscriber.",
			ConstLabels: labels,
		}, func() float64 { length, _ := s.queue.len(); return float64(length) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name:        "eventd_broadcaster_queue_capacity",
			Help:        "Occurrences that may wait for a subscriber.",
			ConstLabels: labels,
		}, func() float64 { return float64(s.queue.capacity) }),
	}
	if s.ledger != nil {
		collectors = append(collectors, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name:        "eventd_occurrences_pending",
			Help:        "Occurrences that a station holds.",
			ConstLabels: prometheus.Labels{"station": "broadcaster"},
		}, func() float64 { _, weight := s.queue.len(); return float64(weight) }))
	}
	for _, c := range collectors {
		if err := o.Registerer.Register(c); err != nil {
			return err
		}
	}
	return nil
}
