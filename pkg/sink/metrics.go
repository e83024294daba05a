package sink

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/eventd/eventd/internal/occurrence"
)

type metrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	inFlight prometheus.Gauge
	failed   *prometheus.CounterVec
	retries  *prometheus.CounterVec
	merged   prometheus.Counter
	unique   *prometheus.CounterVec
	latency  *prometheus.HistogramVec
}

// newMetrics registers the sink's metrics; a nil registerer leaves them out.
func newMetrics(s *Sink, r prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "eventd_sink_requests_total",
			Help: "Requests to the apiserver by verb and HTTP status code; 0 is a request without an answer.",
		}, []string{"verb", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "eventd_sink_request_duration_seconds",
			Help:    "Time that the apiserver took to answer, by verb.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
		}, []string{"verb"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "eventd_sink_requests_in_flight",
			Help: "Requests that wait for the apiserver's answer.",
		}),
		failed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "eventd_sink_requests_failed_total",
			Help: "Requests that did not write what they were to: exists (changed meanwhile: read and planned again), gone (expired: created again), refused (dropped, or made again without labels and annotations, or not believed yet), retry (not taken), unreachable (no connection), lost (no telling answer).",
		}, []string{"class"}),
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "eventd_sink_retries_total",
			Help: "Waits before a request is made again, by what became of the one before: retry (not taken), unreachable (no connection: all wait together), lost (no telling answer), refused (not believed yet), exists (changed too often in a row).",
		}, []string{"class"}),
		merged: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "eventd_sink_merged_total",
			Help: "Occurrences that were written together with another one of their series.",
		}),
		unique: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "eventd_sink_unique_names_total",
			Help: "Random names of Events, where none can be derived that others find: occupied (foreign Events have them all), annotations_removed (admission removes those by which others find them), forbidden (what is stored may not be changed).",
		}, []string{"reason"}),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "eventd_sink_commit_latency_seconds",
			Help:    "Time from recording an occurrence until it was written, by whether its write was to wait; of those that were written together, the one that waited longest.",
			Buckets: prometheus.ExponentialBuckets(0.005, 2.5, 14),
		}, []string{"deferred"}),
	}
	for _, c := range []class{classExists, classRefused, classNotTaken, classUnreachable, classLost} {
		m.retries.WithLabelValues(string(c))
	}
	for _, d := range []drawn{occupied, unmarked, forbidden} {
		m.unique.WithLabelValues(string(d))
	}
	for _, deferred := range []bool{false, true} {
		m.latency.WithLabelValues(strconv.FormatBool(deferred))
	}
	for _, v := range []verb{verbCreate, verbPatch, verbRead, verbGet, verbUpdate} {
		m.duration.WithLabelValues(string(v))
		m.requests.WithLabelValues(string(v), strconv.Itoa(v.success()))
	}
	for _, c := range []class{classExists, classNotFound, classRefused, classNotTaken, classUnreachable, classLost} {
		m.failed.WithLabelValues(string(c))
	}
	if r == nil {
		return m, nil
	}
	if err := registerDenied(s, r); err != nil {
		return nil, err
	}
	for _, c := range []prometheus.Collector{
		m.requests, m.duration, m.inFlight, m.failed, m.retries, m.merged, m.unique, m.latency,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "eventd_sink_abandoned_requests",
			Help: "Requests that have not returned though their time is over, and that nobody waits for; each keeps a goroutine.",
		}, func() float64 { return float64(s.abandonedCount()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "eventd_sink_concurrency_limit",
			Help: "Series that may be worked on at once, as the apiserver shows that it can take.",
		}, func() float64 { return float64(s.concurrencyLimit()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "eventd_sink_concurrency_ceiling",
			Help: "The most series that may ever be worked on at once.",
		}, func() float64 { return float64(s.options.Concurrency) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "eventd_sink_rate_limit",
			Help: "Requests per second that may go to the apiserver in the long run; +Inf if there is no limit.",
		}, func() float64 { return s.options.QPS }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "eventd_sink_overdue_seconds",
			Help: "Time since the write was due of the series that has waited longest for it.",
		}, func() float64 { return s.overdue(time.Now()).Seconds() }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "eventd_sink_oldest_pending_seconds",
			Help: "Time since the oldest occurrence was recorded that is not written yet, whether its write is due or was put off.",
		}, func() float64 { return s.oldest(time.Now()).Seconds() }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "eventd_sink_pending_series",
			Help: "Series with occurrences that are not written yet.",
		}, func() float64 { return float64(s.Pending().Series) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "eventd_sink_deferred_series",
			Help: "Pending series whose next write is not due yet.",
		}, func() float64 { return float64(s.deferredSeries()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "eventd_sink_pending_series_capacity",
			Help: "Series that may be pending at once.",
		}, func() float64 { return float64(s.options.MaxPendingSeries) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "eventd_sink_pending_bytes",
			Help: "Memory that occurrences take which are not written yet.",
		}, func() float64 { return float64(s.pendingBytes()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "eventd_sink_pending_bytes_capacity",
			Help: "Memory that such occurrences may take; what comes on top is dropped, or others for it.",
		}, func() float64 { return float64(s.options.MaxPendingBytes) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name:        "eventd_occurrences_pending",
			Help:        "Occurrences that a station holds.",
			ConstLabels: prometheus.Labels{"station": "sink"},
		}, func() float64 { return float64(s.Pending().Occurrences) }),
	} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// registerDenied registers a gauge for each right and API group.
func registerDenied(s *Sink, r prometheus.Registerer) error {
	for right := range rights {
		for group, api := range map[string]occurrence.API{"core": occurrence.CoreV1, "events.k8s.io": occurrence.EventsV1} {
			err := r.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
				Name:        "eventd_sink_denied_namespaces",
				Help:        "Namespaces in which we had no right to a verb on events when it was last asked for, by verb and API group. Events are written there in another way.",
				ConstLabels: prometheus.Labels{"verb": right.String(), "group": group},
			}, func() float64 { return float64(s.deniedNamespaces(right, api)) }))
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// committed counts what one write, or a read after it, has settled.
func (m *metrics) committed(out []settled, now time.Time) {
	var written int64
	for i := range out {
		if n := out[i].created + out[i].written; n > 0 {
			written += n
			m.latency.WithLabelValues(strconv.FormatBool(out[i].deferred)).Observe(now.Sub(out[i].oldest.recorded).Seconds())
		}
	}
	if written > 1 {
		m.merged.Add(float64(written - 1))
	}
}

func (m *metrics) answered(v verb, a answer, seconds float64) {
	m.requests.WithLabelValues(string(v), strconv.Itoa(a.code)).Inc()
	if a.code != 0 {
		m.duration.WithLabelValues(string(v)).Observe(seconds)
	}
}
