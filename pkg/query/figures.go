package query

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/eventd/eventd/pkg/query/v1alpha1"
)

const (
	// gatherPeriod is the minimum time between two reads of the metrics, for all who ask.
	gatherPeriod = time.Second
	// rateWindow is the maximum time that a rate is over. Without a read in that time, there is none.
	rateWindow = time.Minute
	// maxSamples limits the samples of one metric in an answer: rules and receivers are labels.
	maxSamples = 64
)

// figures reads the metrics of the process. It is safe for concurrent use.
type figures struct {
	gatherer prometheus.Gatherer

	mu   sync.Mutex
	last *reading
}

func newFigures(g prometheus.Gatherer) *figures { return &figures{gatherer: g} }

// get returns the metrics, at most gatherPeriod old.
func (f *figures) get() (*reading, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.last != nil && time.Since(f.last.at) < gatherPeriod {
		return f.last, nil
	}
	families, err := f.gatherer.Gather()
	if err != nil {
		return nil, fmt.Errorf("reading the metrics: %w", err)
	}
	next := &reading{samples: samples{at: time.Now(), families: make(map[string]*dto.MetricFamily, len(families))}}
	for _, family := range families {
		next.families[family.GetName()] = family
	}
	if f.last != nil && next.at.Sub(f.last.at) < rateWindow {
		next.before = &f.last.samples
	}
	f.last = next
	return next, nil
}

// samples are the metrics at one moment.
type samples struct {
	at       time.Time
	families map[string]*dto.MetricFamily
}

// reading is the metrics at one moment, and those of the reading before, or nil. It does not change.
type reading struct {
	samples
	before *samples
}

// all returns the samples of a metric whose labels have the given ones, names and values in turn, in the
// order of their labels. Samples of counters that never counted are left out. So are values that JSON does
// not have, such as that of a limit which is infinite.
func (r *reading) all(name string, labels ...string) (out []v1alpha1.Figure) {
	family := r.families[name]
	for _, m := range family.GetMetric() {
		value, ok := valueOf(family.GetType(), m)
		if !ok || !has(m, labels) || value == 0 && family.GetType() == dto.MetricType_COUNTER && len(m.GetLabel()) > len(labels)/2 {
			continue
		}
		if len(out) == maxSamples {
			break
		}
		out = append(out, v1alpha1.Figure{Metric: name, Labels: labelsOf(m), Value: value, PerSecond: r.rate(family, m, value)})
	}
	return out
}

// one returns a sample, or nil.
func (r *reading) one(name string, labels ...string) *v1alpha1.Figure {
	family := r.families[name]
	for _, m := range family.GetMetric() {
		if value, ok := valueOf(family.GetType(), m); ok && has(m, labels) {
			return &v1alpha1.Figure{Metric: name, Labels: labelsOf(m), Value: value, PerSecond: r.rate(family, m, value)}
		}
	}
	return nil
}

// value returns the value of a sample, or 0.
func (r *reading) value(name string, labels ...string) float64 {
	if f := r.one(name, labels...); f != nil {
		return f.Value
	}
	return 0
}

// rate returns the rate of a counter since the reading before.
func (r *reading) rate(family *dto.MetricFamily, m *dto.Metric, value float64) *float64 {
	if r.before == nil || family.GetType() != dto.MetricType_COUNTER || r.before.families[family.GetName()] == nil {
		return nil
	}
	former := 0. // a label that is new has counted from 0
	for _, other := range r.before.families[family.GetName()].GetMetric() {
		if maps.Equal(labelsOf(other), labelsOf(m)) {
			former, _ = valueOf(family.GetType(), other)
			break
		}
	}
	if value < former {
		return nil // it was removed, and is a new one
	}
	rate := (value - former) / r.at.Sub(r.before.at).Seconds()
	return &rate
}

// valueOf returns the value of a counter or gauge, if JSON has it.
func valueOf(kind dto.MetricType, m *dto.Metric) (value float64, ok bool) {
	switch kind {
	case dto.MetricType_COUNTER:
		value = m.GetCounter().GetValue()
	case dto.MetricType_GAUGE:
		value = m.GetGauge().GetValue()
	default:
		return 0, false
	}
	return value, !math.IsNaN(value) && !math.IsInf(value, 0)
}

// has reports whether a sample has labels: names and values in turn.
func has(m *dto.Metric, labels []string) bool {
	for i := 0; i+1 < len(labels); i += 2 {
		if !slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool {
			return l.GetName() == labels[i] && l.GetValue() == labels[i+1]
		}) {
			return false
		}
	}
	return true
}

func labelsOf(m *dto.Metric) map[string]string {
	if len(m.GetLabel()) == 0 {
		return nil
	}
	out := make(map[string]string, len(m.GetLabel()))
	for _, l := range m.GetLabel() {
		out[l.GetName()] = l.GetValue()
	}
	return out
}
