package correlator

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	decisions [len(reasons)]prometheus.Counter
	deferred  [len(deferrals)]prometheus.Counter
	subjects  prometheus.Gauge
	evictions prometheus.Counter
}

// newMetrics returns the metrics, and registers them unless the registerer is nil.
func newMetrics(r prometheus.Registerer) (*metrics, error) {
	decisions := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "eventd_correlator_decisions_total",
		Help: "Decisions by reason: new_series, repeat, combined (counted on its group's combined Event), budget_spent (dropped).",
	}, []string{"reason"})
	deferred := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "eventd_correlator_deferred_total",
		Help: "Occurrences with a deferred write, by reason: spaced (series written recently), settling (final count awaited), budget (subject without token).",
	}, []string{"reason"})
	m := &metrics{
		subjects: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "eventd_correlator_subjects",
			Help: "Subjects in the cache.",
		}),
		evictions: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "eventd_correlator_evictions_total",
			Help: "Subjects evicted because the cache was full.",
		}),
	}
	for reason, name := range reasons {
		m.decisions[reason] = decisions.WithLabelValues(name)
	}
	for deferral, name := range deferrals {
		if Deferral(deferral) != NotDeferred {
			m.deferred[deferral] = deferred.WithLabelValues(name)
		}
	}
	if r == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{decisions, deferred, m.subjects, m.evictions} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}
