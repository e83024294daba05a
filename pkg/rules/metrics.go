package rules

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics has the metrics of the set in force. It outlives sets. It is safe for concurrent use.
type Metrics struct {
	routes, metrics *prometheus.Desc
	inForce         atomic.Pointer[Set]
}

// NewMetrics returns metrics of no set yet, and registers them unless the registerer is nil.
func NewMetrics(r prometheus.Registerer) (*Metrics, error) {
	const results = "by result: match, no_match, error, over_budget. The last two do not match."
	m := &Metrics{
		routes: prometheus.NewDesc("eventd_route_evaluations_total",
			"Evaluations of routes "+results, []string{"route", "result"}, nil),
		metrics: prometheus.NewDesc("eventd_metric_evaluations_total",
			"Evaluations of metrics of the configuration "+results, []string{"metric", "result"}, nil),
	}
	if r == nil {
		return m, nil
	}
	return m, r.Register(m)
}

// Use replaces the set whose metrics are reported. Its counters start at 0, and those of the former
// one are gone: Prometheus takes it for a restart.
func (m *Metrics) Use(s *Set) { m.inForce.Store(s) }

// Describe is that of prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) { ch <- m.routes; ch <- m.metrics }

// Collect is that of prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	s := m.inForce.Load()
	if s == nil {
		return
	}
	for _, r := range s.routes {
		r.collect(m.routes, ch)
	}
	for _, r := range s.metrics {
		r.collect(m.metrics, ch)
	}
}

func (r *rule) collect(desc *prometheus.Desc, ch chan<- prometheus.Metric) {
	for i, result := range counted {
		ch <- counterOf(desc, &r.counts[i], r.name, string(result))
	}
}

func counterOf(of *prometheus.Desc, count *atomic.Uint64, labels ...string) prometheus.Metric {
	metric, err := prometheus.NewConstMetric(of, prometheus.CounterValue, float64(count.Load()), labels...)
	if err != nil {
		return prometheus.NewInvalidMetric(of, err)
	}
	return metric
}
