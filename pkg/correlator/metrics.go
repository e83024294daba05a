package correlator

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/eventd/eventd/internal/instrument"
)

type metrics struct {
	decisions [len(reasons)]prometheus.Counter
	deferred  [len(deferrals)]prometheus.Counter
	subjects  prometheus.Gauge
	evictions prometheus.Counter
}

// newMetrics returns the metrics, and registers them unless the registerer is nil.
func newMetrics(r prometheus.Registerer) (*metrics, error) {
	set := instrument.New(r)
	decisions := set.CounterVec("eventd_correlator_decisions_total",
		"Decisions by reason: new_series, repeat, combined (counted on its group's combined Event), budget_spent (dropped).", "reason")
	deferred := set.CounterVec("eventd_correlator_deferred_total",
		"Occurrences with a deferred write, by reason: spaced (series written recently), settling (final count awaited), budget (subject without token).", "reason")
	m := &metrics{
		subjects:  set.Gauge("eventd_correlator_subjects", "Subjects in the cache."),
		evictions: set.Counter("eventd_correlator_evictions_total", "Subjects evicted because the cache was full."),
	}
	for reason, name := range reasons {
		m.decisions[reason] = decisions.WithLabelValues(name)
	}
	for deferral, name := range deferrals {
		if Deferral(deferral) != NotDeferred {
			m.deferred[deferral] = deferred.WithLabelValues(name)
		}
	}
	return m, set.Err()
}
