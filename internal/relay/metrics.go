package relay

import (
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
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
	m := &metrics{
		forwarded: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "eventd_relay_requests_total",
			Help: "Forwarded requests that the leader answered, by HTTP status code.",
		}, []string{"code"}),
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "eventd_relay_retries_total",
			Help: "Forwarding attempts without effect, by reason. The request waits for a leader.",
		}, []string{"reason"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "eventd_relay_refused_total",
			Help: "Requests that this replica answered 503, or 504 (timeout), instead of the leader, by reason.",
		}, []string{"reason"}),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "eventd_relay_parked",
			Help: "Requests waiting for a leader.",
		}),
		waitTime: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "eventd_relay_parked_duration_seconds",
			Help:    "Time that waiting requests waited for a leader.",
			Buckets: []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 2},
		}),
		sessions: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "eventd_relay_sessions",
			Help: "Open replication sessions in which this replica follows a leader, present or former.",
		}),
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
	if r == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.forwarded, m.retries, m.refused, m.waiting, m.waitTime, m.sessions} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}
