package election

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/eventd/eventd/internal/instrument"
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
	set := instrument.New(r)
	m := &metrics{
		transitions: set.CounterVec("eventd_election_transitions_total",
			"Changes of role: became leader, lost or released the lease.", "transition"),
		renewal: set.Histogram("eventd_election_renewal_duration_seconds",
			"Duration of acknowledged lease renewals, second attempts included.", prometheus.ExponentialBuckets(0.001, 2, 14)),
		failures: set.Counter("eventd_election_renewals_failed_total", "Lease renewals that were not acknowledged."),
		handover: set.Histogram("eventd_election_handover_duration_seconds",
			"Time from when the lease was seen free, released or expired, until it was acquired.", prometheus.ExponentialBuckets(0.001, 2, 14)),
		watchRestarts: set.Counter("eventd_election_watch_restarts_total", "Restarts of the watch of the lease."),
	}
	for _, t := range []transition{became, lost, released} {
		m.transitions.WithLabelValues(string(t))
	}
	set.GaugeFunc("eventd_election_leading", "1 while this process leads, otherwise 0.", func() float64 { return instrument.Bool(e.Leading()) })
	set.GaugeFunc("eventd_election_deadline_seconds",
		"Time until leadership ends without a renewal; negative while leader work continues past it; NaN on a standby.", func() float64 {
			if t := e.term.Load(); t != nil {
				return -t.overdue().Seconds()
			}
			return math.NaN()
		})
	return m, set.Err()
}

func (m *metrics) changed(t transition) { m.transitions.WithLabelValues(string(t)).Inc() }
