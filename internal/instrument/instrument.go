// Package instrument makes the metrics of a station, and registers them.
package instrument

import "github.com/prometheus/client_golang/prometheus"

// Set makes metrics, and registers each. Without a Registerer they count for nobody. The caller must look at Err when
// all are made. One goroutine at a time uses a Set; the metrics are safe for concurrent use.
type Set struct {
	*registrations
	labels prometheus.Labels
}

// registrations are those of a Set and its parts.
type registrations struct {
	registerer prometheus.Registerer
	registered []prometheus.Collector
	err        error // the first one
}

// New returns a Set that registers with r, which may be nil.
func New(r prometheus.Registerer) *Set { return &Set{registrations: &registrations{registerer: r}} }

// With returns a part of the Set, whose metrics have these labels.
func (s *Set) With(labels prometheus.Labels) *Set { return &Set{s.registrations, labels} }

// Err returns the error of registering, after which nothing more was registered.
func (s *Set) Err() error { return s.err }

// Add registers a collector that was made elsewhere.
func (s *Set) Add(c prometheus.Collector) {
	if s.registerer == nil || s.err != nil {
		return
	}
	if s.err = s.registerer.Register(c); s.err == nil {
		s.registered = append(s.registered, c)
	}
}

// Unregister unregisters what was registered.
func (s *Set) Unregister() {
	for _, c := range s.registered {
		s.registerer.Unregister(c)
	}
	s.registered = nil
}

func add[C prometheus.Collector](s *Set, c C) C {
	s.Add(c)
	return c
}

func (s *Set) opts(name, help string) prometheus.Opts {
	return prometheus.Opts{Name: name, Help: help, ConstLabels: s.labels}
}

// Counter makes a counter.
func (s *Set) Counter(name, help string) prometheus.Counter {
	return add(s, prometheus.NewCounter(prometheus.CounterOpts(s.opts(name, help))))
}

// CounterVec makes a counter for each value of its labels.
func (s *Set) CounterVec(name, help string, labels ...string) *prometheus.CounterVec {
	return add(s, prometheus.NewCounterVec(prometheus.CounterOpts(s.opts(name, help)), labels))
}

// Gauge makes a gauge.
func (s *Set) Gauge(name, help string) prometheus.Gauge {
	return add(s, prometheus.NewGauge(prometheus.GaugeOpts(s.opts(name, help))))
}

// GaugeVec makes a gauge for each value of its labels.
func (s *Set) GaugeVec(name, help string, labels ...string) *prometheus.GaugeVec {
	return add(s, prometheus.NewGaugeVec(prometheus.GaugeOpts(s.opts(name, help)), labels))
}

// GaugeFunc makes a gauge whose value is read at each scrape.
func (s *Set) GaugeFunc(name, help string, read func() float64) {
	s.Add(prometheus.NewGaugeFunc(prometheus.GaugeOpts(s.opts(name, help)), read))
}

// Histogram makes a histogram.
func (s *Set) Histogram(name, help string, buckets []float64) prometheus.Histogram {
	return add(s, prometheus.NewHistogram(s.histogramOpts(name, help, buckets)))
}

// HistogramVec makes a histogram for each value of its labels.
func (s *Set) HistogramVec(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return add(s, prometheus.NewHistogramVec(s.histogramOpts(name, help, buckets), labels))
}

func (s *Set) histogramOpts(name, help string, buckets []float64) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{Name: name, Help: help, ConstLabels: s.labels, Buckets: buckets}
}

// Bool is the value of a gauge that says whether something holds.
func Bool(holds bool) float64 {
	if holds {
		return 1
	}
	return 0
}
