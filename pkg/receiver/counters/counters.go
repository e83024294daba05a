package counters

import (
	"reflect"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/pkg/config/v1alpha1"
)

// Prefix begins the names of these counters, and of no other metric of eventd.
const Prefix = "eventd_rule_"

// Metric decides which Events a counter counts. It is safe for concurrent use, and only reads Events.
type Metric interface {
	// Definition identifies the metric: one with an equal definition continues its counter.
	Definition() *v1alpha1.Metric
	// LabelNames are the names of the labels, sorted.
	LabelNames() []string
	// Match reports whether an Event counts.
	Match(event *corev1.Event) bool
	// LabelValues are the values of the labels, in the order of their names. The caller may change
	// them.
	LabelValues(event *corev1.Event) []string
}

// Counters are the counters of the metrics in force. They are safe for concurrent use, and the zero
// value has none. Nothing has to be closed.
type Counters struct {
	mu      sync.Mutex // of Use
	inForce atomic.Pointer[[]*counter]
}

// counter has the series of a metric. The metric that Use has set last reads the Events.
type counter struct {
	Metric
	*series
}

// Use replaces the metrics. Those whose definition has not changed go on, and the others begin at 0.
func (c *Counters) Use(metrics []Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	former := c.list()
	counters := make([]*counter, len(metrics))
	for i, m := range metrics {
		counters[i] = &counter{Metric: m}
		for _, f := range former {
			if reflect.DeepEqual(f.Definition(), m.Definition()) {
				counters[i].series = f.series
			}
		}
		if counters[i].series == nil {
			counters[i].series = newSeries(m)
		}
	}
	c.inForce.Store(&counters)
}

func (c *Counters) list() []*counter {
	if inForce := c.inForce.Load(); inForce != nil {
		return *inForce
	}
	return nil
}

// count adds occurrences of an Event.
func (c *Counters) count(event *corev1.Event, n int64) {
	for _, m := range c.list() {
		if m.Match(event) {
			m.add(event.Namespace, LabelValues(m, event), n)
		}
	}
}

// Describe implements prometheus.Collector. It describes nothing, since the metrics change.
func (c *Counters) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c *Counters) Collect(out chan<- prometheus.Metric) {
	for _, m := range c.list() {
		for _, metric := range m.collect() { // sent without its mutex, which the receiver needs
			out <- metric
		}
	}
}
