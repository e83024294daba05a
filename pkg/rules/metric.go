package rules

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/pkg/config/v1alpha1"
)

// A Metric decides which Events count. It does not change, apart from the counters of its
// evaluations, and is safe for concurrent use.
type Metric struct {
	rule
	definition v1alpha1.Metric
	labels     []string // their names, sorted
}

// Metrics returns the metrics of the configuration, in its order.
func (s *Set) Metrics() []*Metric { return s.metrics }

// Definition is that of the configuration. It is not changed.
func (m *Metric) Definition() *v1alpha1.Metric { return &m.definition }

// LabelNames returns the names of the labels, sorted.
func (m *Metric) LabelNames() []string { return m.labels }

// Evaluate reports whether an Event counts, which it only reads, and why not.
func (m *Metric) Evaluate(event *corev1.Event) (Result, error) {
	return m.evaluate(&activation{eventType.new(event)})
}

// Match reports whether an Event counts.
func (m *Metric) Match(event *corev1.Event) bool {
	result, _ := m.Evaluate(event)
	return result == Match
}

// LabelValues returns the values of the labels, in the order of LabelNames, as they are in the
// Event. It is empty without labels.
func (m *Metric) LabelValues(event *corev1.Event) []string {
	values := make([]string, len(m.labels))
	for i, name := range m.labels {
		values[i] = readField(event, m.definition.Labels[name])
	}
	return values
}

func newMetric(from *v1alpha1.Metric) *Metric {
	return &Metric{rule: rule{name: from.Name}, definition: *from, labels: slices.Sorted(maps.Keys(from.Labels))}
}
