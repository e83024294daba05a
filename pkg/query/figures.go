package query

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/eventd/eventd/internal/sleep"
	"github.com/eventd/eventd/pkg/query/v1alpha1"
)

const (
	// gatherPeriod is the minimum time between two reads of the metrics, for all who ask.
	gatherPeriod = time.Second
	// samplePeriod is how often counters are sampled, and rateSamples how many samples are kept: rates are
	// over the last 4 to 6 s.
	samplePeriod = 2 * time.Second
	rateSamples  = 3
	// maxSamples limits the samples of one metric in an answer: rules and receivers are labels.
	maxSamples = 64
)

// figures reads the metrics of the process. It is safe for concurrent use.
type figures struct {
	gatherer prometheus.Gatherer

	mu     sync.Mutex
	last   *reading
	before []samples // of the last seconds, oldest first
}

func newFigures(g prometheus.Gatherer) *figures { return &figures{gatherer: g} }

// run samples the counters until ctx ends, whether anybody asks or not: so the first answer has rates.
func (f *figures) run(ctx context.Context) {
	f.sample()
	for sleep.For(ctx, samplePeriod) == nil {
		f.sample()
	}
}

// sample keeps the counters of now, in place of the oldest ones. Metrics that cannot be read now leave no
// sample: whoever asks gets the error.
func (f *figures) sample() {
	f.mu.Lock()
	defer f.mu.Unlock()
	r, err := f.read()
	if err != nil {
		return
	}
	if len(f.before) == rateSamples {
		f.before = slices.Delete(f.before, 0, 1)
	}
	f.before = append(f.before, r.counters())
}

// get returns the metrics, at most gatherPeriod old.
func (f *figures) get() (*reading, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.read()
}

// read reads the metrics, unless that was done a moment ago. The mutex must be held.
func (f *figures) read() (*reading, error) {
	if f.last != nil && time.Since(f.last.at) < gatherPeriod {
		return f.last, nil
	}
	families, err := f.gatherer.Gather()
	if err != nil {
		return nil, fmt.Errorf("reading the metrics: %w", err)
	}
	next := &reading{at: time.Now(), families: make(map[string]*dto.MetricFamily, len(families))}
	for _, family := range families {
		next.families[family.GetName()] = family
	}
	if len(f.before) > 0 {
		next.before = new(f.before[0]) // the oldest one is at least gatherPeriod old
	}
	f.last = next
	return next, nil
}

// samples are the counters of the stations at one moment, by name and labels. It does not change.
type samples struct {
	at     time.Time
	values map[string]float64
}

// reading is the metrics at one moment, and the counters of some seconds before, or nil. It does not change.
type reading struct {
	at       time.Time
	families map[string]*dto.MetricFamily
	before   *samples
}

// counters returns the counters that answers have.
func (r *reading) counters() samples {
	s := samples{at: r.at, values: make(map[string]float64)}
	for name := range shown {
		family := r.families[name]
		if family.GetType() != dto.MetricType_COUNTER {
			continue
		}
		s.values[name] = 0 // the metric exists: its labels that come have counted from 0
		for _, m := range family.GetMetric() {
			if value, ok := valueOf(family.GetType(), m); ok {
				s.values[keyOf(name, m)] = value
			}
		}
	}
	return s
}

// shown are the metrics in answers.
var shown = func() map[string]bool {
	names := make(map[string]bool)
	for _, s := range append(slices.Clone(stations), apiserver) {
		for _, name := range s.figures {
			names[name] = true
		}
	}
	for _, name := range slices.Concat(receiverFigures, ruleFigures) {
		names[name] = true
	}
	return names
}()

// keyOf returns the name of a sample with its labels.
func keyOf(name string, m *dto.Metric) string {
	var key strings.Builder
	key.WriteString(name)
	for _, l := range m.GetLabel() {
		key.WriteByte(0)
		key.WriteString(l.GetName())
		key.WriteByte(0)
		key.WriteString(l.GetValue())
	}
	return key.String()
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

// value returns the value of a metric without labels, or 0.
func (r *reading) value(name string) float64 {
	if f := r.one(name); f != nil {
		return f.Value
	}
	return 0
}

// rate returns the rate of a counter over the last seconds, or nil.
func (r *reading) rate(family *dto.MetricFamily, m *dto.Metric, value float64) *float64 {
	if r.before == nil || family.GetType() != dto.MetricType_COUNTER {
		return nil
	}
	if _, ok := r.before.values[family.GetName()]; !ok {
		return nil
	}
	former := r.before.values[keyOf(family.GetName(), m)] // a label that is new has counted from 0
	if value < former {
		return nil // it was removed, and is a new one
	}
	return new((value - former) / r.at.Sub(r.before.at).Seconds())
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
