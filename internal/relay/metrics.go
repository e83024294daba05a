package relay

import (
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/eventd/eventd/internal/instrument"
)

type metrics struct {
	forwarded *prometheus.CounterVec
	retries   *prometheus.CounterVec
	refused   *prometheus.CounterVec
	waiting   prometheus.Gauge
	waitTime  prometheus.Histogram
	sessions  prometheus.Gauge
}

// newMetrics registers the metrics. A nil registerer leaves them out.
func newMetrics(r prometheus.Registerer) (*metrics, error) {
	set := instrument.New(r)
	m := &metrics{
		forwarded: set.CounterVec("eventd_relay_requests_total",
			"Forwarded requests that the leader answered, by HTTP status code.", "code"),
		retries: set.CounterVec("eventd_relay_retries_total",
			"Forwarding attempts without effect, by reason. The request waits for a leader.", "reason"),
		refused: set.CounterVec("eventd_relay_refused_total",
			"Requests that this replica answered 503, or 504 (timeout), instead of the leader, by reason.", "reason"),
		waiting: set.Gauge("eventd_relay_parked", "Requests waiting for a leader."),
		waitTime: set.Histogram("eventd_relay_parked_duration_seconds",
			"Time that waiting requests waited for a leader.", []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 2}),
		sessions: set.Gauge("eventd_relay_sessions",
			"Open replication sessions in which this replica follows a leader, present or former."),
	}
	for _, code := range []int{http.StatusOK, http.StatusCreated, http.StatusAccepted} {
		m.forwarded.WithLabelValues(strconv.Itoa(code))
	}
	for _, f := range []*failure{errNotLeading, errNotConnected} {
		m.retries.WithLabelValues(f.reason)
	}
	for _, f := range failures {
		m.refused.WithLabelValues(f.reason)
	}
	m.refused.WithLabelValues(reasonTimeout)
	return m, set.Err()
}
