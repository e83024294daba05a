package broadcaster

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/eventd/eventd/internal/instrument"
)

// metrics of one subscriber.
type metrics struct {
	dropped, panics prometheus.Counter

	mu  sync.Mutex
	set *instrument.Set
}

// register creates the metrics, and registers all of them or, on an error, none.
func (m *metrics) register(q *queue, o SubscribeOptions) error {
	m.set = instrument.New(o.Registerer)
	of := m.set.With(prometheus.Labels{"subscriber": o.Name})
	m.dropped = of.Counter("eventd_broadcaster_dropped_total", "Occurrences dropped because a subscriber's queue was full or shut down.")
	m.panics = of.Counter("eventd_broadcaster_panics_total", "Panics of a subscriber's handler.")
	of.GaugeFunc("eventd_broadcaster_queue_length", "Occurrences queued for a subscriber.",
		func() float64 { length, _ := q.len(); return float64(length) })
	of.GaugeFunc("eventd_broadcaster_queue_capacity", "Capacity of a subscriber's queue, in occurrences.",
		func() float64 { return float64(q.capacity) })
	of.GaugeFunc("eventd_broadcaster_oldest_queued_seconds", "Time since a subscriber's oldest queued occurrence was recorded.",
		func() float64 { return q.age().Seconds() })
	if o.Ledger != nil {
		m.set.With(prometheus.Labels{"station": "broadcaster"}).GaugeFunc("eventd_occurrences_pending",
			"Occurrences without an outcome yet, by stage.", func() float64 { _, weight := q.len(); return float64(weight) })
	}
	err := m.set.Err()
	if err != nil {
		m.unregister()
	}
	return err
}

func (m *metrics) unregister() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.set.Unregister()
}
