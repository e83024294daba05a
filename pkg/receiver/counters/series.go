package counters

import (
	"cmp"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/internal/eventfields"
)

const (
	// other is the value of every label of the series for what has no series of its own.
	other = "other"
	// maxLabelBytes bounds the value of a label. A series of 8 labels takes 1.3 KiB at most, and
	// v1alpha1.MaxSeries of them 10 MiB.
	maxLabelBytes = 128
)

// series are those of one metric.
type series struct {
	desc *prometheus.Desc
	max  int

	mu    sync.Mutex
	byKey map[string]*sample
	// held are the numbers of series by the namespace whose Event was the first of it.
	held map[string]int
	// rest is the sample of what has no series, and restKey its key.
	rest    *sample
	restKey string
}

type sample struct {
	values []string
	count  int64
	since  time.Time
}

// newSeries returns the series that are known before anything counts, at 0: increase() of Prometheus
// misses what a series begins with. They are the only one of a metric without labels, and the one for
// the rest.
func newSeries(m Metric) *series {
	d := m.Definition()
	help := cmp.Or(d.Help, "Occurrences of Events that the metric "+d.Name+" of the configuration matches.")
	s := &series{
		desc: prometheus.NewDesc(Prefix+d.Name+"_total", help, m.LabelNames(), nil),
		max:  int(*d.MaxSeries), byKey: make(map[string]*sample), held: make(map[string]int),
		rest: &sample{since: time.Now()},
	}
	for range m.LabelNames() {
		s.rest.values = append(s.rest.values, other)
	}
	s.restKey = keyOf(s.rest.values)
	return s
}

// LabelValues returns the values of labels of a metric for an Event, as they are exported.
func LabelValues(m Metric, event *corev1.Event) []string {
	values := m.LabelValues(event)
	for i, v := range values {
		values[i] = eventfields.ValidUTF8(v, maxLabelBytes)
	}
	return values
}

// add counts occurrences in the series of values, which it keeps.
func (s *series) add(namespace string, values []string, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of(namespace, values).count += n
}

// of returns the series of values, or the rest if it would be one too many. A namespace may have as
// many as it leaves free for others, so alone a half: a tenant who invents values must not take
// them all. The mutex must be held.
func (s *series) of(namespace string, values []string) *sample {
	key := keyOf(values)
	if key == s.restKey {
		return s.rest
	}
	if found := s.byKey[key]; found != nil {
		return found
	}
	if free := s.max - len(s.byKey); s.held[namespace] >= free {
		return s.rest
	}
	for i, v := range values {
		values[i] = strings.Clone(v) // else it keeps the message that it was cut from
	}
	key = keyOf(values) // that of one value is the value itself
	s.held[namespace]++
	s.byKey[key] = &sample{values: values, since: time.Now()}
	return s.byKey[key]
}

// keyOf identifies values: the separator is in no UTF-8.
func keyOf(values []string) string { return strings.Join(values, "\xff") }

// collect returns the metrics at one moment. Their created timestamps tell a Prometheus that ingests
// them that a new series began at 0.
func (s *series) collect() []prometheus.Metric {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]prometheus.Metric, 0, len(s.byKey)+1)
	add := func(of *sample) {
		metric, err := prometheus.NewConstMetricWithCreatedTimestamp(s.desc, prometheus.CounterValue, float64(of.count), of.since, of.values...)
		if err != nil {
			metric = prometheus.NewInvalidMetric(s.desc, err)
		}
		out = append(out, metric)
	}
	add(s.rest)
	for _, of := range s.byKey {
		add(of)
	}
	return out
}
