package correlator

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	decisions [len(reasons)]prometheus.Counter
	deferred  [len(deferrals)]prometheus.Counter
	subjects  prometheus.Gauge
	evictions prometheus.Counter
}

// newMetrics registers the correlator's metrics; a nil registerer leaves them
// out.
func newMetrics(r prometheus.Registerer) (*metrics, error) {
	decisions := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "eventd_correlator_decisions_total",
		Help: "Decisions on occurrences by their reason: new_series, repeat, combined (counted on the combined Event of its group), budget_spent (dropped).",
	}, []string{"reason"})
	deferred := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "eventd_correlator_deferred_total",
		Help: "Occurrences whose write can wait, by why: spaced (a write of the series was made lately), settling (its final count is waited for), budget (its subject has no token).",
	}, []string{"reason"})
	m := &metrics{
		subjects: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "eventd_correlator_subjects",
			Help: "Subjects that are remembered.",
		}),
		evictions: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "eventd_correlator_evictions_total",
			Help: "Subjects that were forgotten because too many others came.",
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
