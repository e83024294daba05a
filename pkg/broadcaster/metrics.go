package broadcaster

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics of one subscriber.
type metrics struct {
	dropped, panics prometheus.Counter

	registerer prometheus.Registerer
	mu         sync.Mutex
	registered []prometheus.Collector
}

// register creates the metrics, and registers all of them or, on an error, none.
func (m *metrics) register(q *queue, o SubscribeOptions) error {
	labels := prometheus.Labels{"subscriber": o.Name}
	m.dropped = prometheus.NewCounter(prometheus.CounterOpts{
		Name:        "eventd_broadcaster_dropped_total",
		Help:        "Occurrences dropped because a subscriber's queue was full or shut down.",
		ConstLabels: labels,
	})
	m.panics = prometheus.NewCounter(prometheus.CounterOpts{
		Name:        "eventd_broadcaster_panics_total",
		Help:        "Panics of a subscriber's handler.",
		ConstLabels: labels,
	})
	if m.registerer = o.Registerer; m.registerer == nil {
		return nil
	}
	gauge := func(name, help string, labels prometheus.Labels, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels}, value)
	}
	collectors := []prometheus.Collector{
		m.dropped,
		m.panics,
		gauge("eventd_broadcaster_queue_length", "Occurrences queued for a subscriber.", labels,
			func() float64 { length, _ := q.len(); return float64(length) }),
		gauge("eventd_broadcaster_queue_capacity", "Capacity of a subscriber's queue, in occurrences.", labels,
			func() float64 { return float64(q.capacity) }),
		gauge("eventd_broadcaster_oldest_queued_seconds", "Time since a subscriber's oldest queued occurrence was recorded.", labels,
			func() float64 { return q.age().Seconds() }),
	}
	if o.Ledger != nil {
		collectors = append(collectors, gauge("eventd_occurrences_pending", "Occurrences without an outcome yet, by stage.",
			prometheus.Labels{"station": "broadcaster"},
			func() float64 { _, weight := q.len(); return float64(weight) }))
	}
	for _, c := range collectors {
		if err := m.registerer.Register(c); err != nil {
			m.unregister()
			return err
		}
		m.registered = append(m.registered, c)
	}
	return nil
}

func (m *metrics) unregister() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.registered {
		m.registerer.Unregister(c)
	}
	m.registered = nil
}
