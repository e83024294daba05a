package election

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"
)

// transition is a change of a process's role in the election.
type transition string

const (
	became   transition = "became"
	lost     transition = "lost"
	released transition = "released"
)

type metrics struct {
	transitions   *prometheus.CounterVec
	renewal       prometheus.Histogram
	failures      prometheus.Counter
	handover      prometheus.Histogram
	watchRestarts prometheus.Counter
}

// newMetrics registers the elector's metrics, unless r is nil.
func newMetrics(e *Elector, r prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		transitions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "eventd_election_transitions_total",
			Help: "Changes of role: became leader, lost or released the lease.",
		}, []string{"transition"}),
		renewal: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "eventd_election_renewal_duration_seconds",
			Help:    "Duration of acknowledged lease renewals, second attempts included.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 14),
		}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "eventd_election_renewals_failed_total",
			Help: "Lease renewals that were not acknowledged.",
		}),
		handover: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "eventd_election_handover_duration_seconds",
			Help:    "Time from when the lease was seen free, released or expired, until it was acquired.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 14),
		}),
		watchRestarts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "eventd_election_watch_restarts_total",
			Help: "Restarts of the watch of the lease.",
		}),
	}
	for _, t := range []transition{became, lost, released} {
		m.transitions.WithLabelValues(string(t))
	}
	if r == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{
		m.transitions, m.renewal, m.failures, m.handover, m.watchRestarts,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "eventd_election_leading",
			Help: "1 while this process leads, otherwise 0.",
		}, func() float64 {
			if e.Leading() {
				return 1
			}
			return 0
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "eventd_election_deadline_seconds",
			Help: "Time until leadership ends without a renewal; negative while leader work continues past it; NaN on a standby.",
		}, func() float64 {
			if t := e.term.Load(); t != nil {
				return -t.overdue().Seconds()
			}
			return math.NaN()
		}),
	} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *metrics) changed(t transition) { m.transitions.WithLabelValues(string(t)).Inc() }
