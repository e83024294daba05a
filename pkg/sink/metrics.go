package sink

import (
	"errors"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/apiclient"
	"github.com/eventd/eventd/pkg/sink/internal/counter"
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
	early    prometheus.Counter
}

// newMetrics registers the sink's metrics; a nil registerer leaves them out.
func newMetrics(s *Sink, r prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "eventd_sink_requests_total",
			Help: "Requests to the apiserver by verb and HTTP status code; 0 means no response.",
		}, []string{"verb", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "eventd_sink_request_duration_seconds",
			Help:    "Response time of the apiserver by verb.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
		}, []string{"verb"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "eventd_sink_requests_in_flight",
			Help: "Requests to the apiserver in flight.",
		}),
		failed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "eventd_sink_requests_failed_total",
			Help: "Requests that did not write, by class: exists (changed: planned again), gone (expired: created again), refused (dropped or retried differently), retry (rejected for now), unreachable (no connection), lost (no conclusive response).",
		}, []string{"class"}),
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "eventd_sink_retries_total",
			Help: "Delays before a retry, by class of the preceding error.",
		}, []string{"class"}),
		merged: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "eventd_sink_merged_total",
			Help: "Occurrences written together with another one of their series.",
		}),
		unique: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "eventd_sink_unique_names_total",
			Help: "Events created under random names, by reason: occupied (by foreign Events), annotations_removed (by admission), forbidden (to change the stored Event).",
		}, []string{"reason"}),
		early: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "eventd_sink_early_writes_total",
			Help: "Deferred writes made early, since no follower held an occurrence within a second.",
		}),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "eventd_sink_commit_latency_seconds",
			Help:    "Time from recording to the write, of the oldest occurrence in each write.",
			Buckets: prometheus.ExponentialBuckets(0.005, 2.5, 14),
		}, []string{"deferred"}),
	}
	for _, c := range []apiclient.Class{apiclient.ClassExists, apiclient.ClassRefused, apiclient.ClassRetry, apiclient.ClassUnreachable, apiclient.ClassLost} {
		m.retries.WithLabelValues(string(c))
	}
	for _, d := range []counter.RandomName{counter.NameOccupied, counter.NameUnmarked, counter.NameForbidden} {
		m.unique.WithLabelValues(string(d))
	}
	for _, deferred := range []bool{false, true} {
		m.latency.WithLabelValues(strconv.FormatBool(deferred))
	}
	for _, v := range []apiclient.Verb{apiclient.VerbCreate, apiclient.VerbPatch, apiclient.VerbRead, apiclient.VerbGet, apiclient.VerbUpdate} {
		m.duration.WithLabelValues(string(v))
		m.requests.WithLabelValues(string(v), strconv.Itoa(v.SuccessCode()))
	}
	for _, c := range []apiclient.Class{apiclient.ClassExists, apiclient.ClassNotFound, apiclient.ClassRefused, apiclient.ClassRetry, apiclient.ClassUnreachable, apiclient.ClassLost} {
		m.failed.WithLabelValues(string(c))
	}
	if r == nil {
		return m, nil
	}
	if err := errors.Join(registerDenied(s, r), registerFollowers(s, r)); err != nil {
		return nil, err
	}
	for _, c := range []prometheus.Collector{
		m.requests, m.duration, m.inFlight, m.failed, m.retries, m.merged, m.unique, m.latency, m.early,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "eventd_sink_abandoned_requests",
			Help: "Requests not returned after their timeout. Each keeps a goroutine.",
		}, func() float64 { return float64(s.abandonedCount()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "eventd_sink_concurrency_limit",
			Help: "Current adaptive concurrency limit, in series. Half as many more may hang.",
		}, func() float64 { return float64(s.concurrencyLimit()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "eventd_sink_concurrency_ceiling",
			Help: "Upper bound of the concurrency limit.",
		}, func() float64 { return float64(s.options.Concurrency) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "eventd_sink_rate_limit",
			Help: "Rate limit of requests to the apiserver, per second; +Inf if unlimited.",
		}, func() float64 { return s.options.QPS }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "eventd_sink_overdue_seconds",
			Help: "How long the most overdue write is overdue.",
		}, func() float64 { return s.overdue(time.Now()).Seconds() }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "eventd_sink_oldest_pending_seconds",
			Help: "Age of the oldest pending occurrence, deferred or not.",
		}, func() float64 { return s.oldest(time.Now()).Seconds() }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "eventd_sink_pending_series",
			Help: "Series with pending occurrences.",
		}, func() float64 { return float64(s.Pending().Series) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "eventd_sink_deferred_series",
			Help: "Pending series whose next write has a deadline in the future.",
		}, func() float64 { return float64(s.deferredSeries()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "eventd_sink_pending_series_capacity",
			Help: "Maximum number of pending series.",
		}, func() float64 { return float64(s.options.MaxPendingSeries) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "eventd_sink_pending_bytes",
			Help: "Memory of pending occurrences.",
		}, func() float64 { return float64(s.pendingBytes()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "eventd_sink_pending_bytes_capacity",
			Help: "Maximum memory of pending occurrences. Above it, occurrences are dropped.",
		}, func() float64 { return float64(s.options.MaxPendingBytes) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "eventd_sink_idle_series",
			Help: "Remembered series without pending occurrences.",
		}, func() float64 { return float64(s.idleCount()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "eventd_sink_idle_series_capacity",
			Help: "Maximum number of remembered series, if each is of one reporter and all are in one namespace.",
		}, func() float64 { return float64(s.options.MaxIdleSeries) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name:        "eventd_occurrences_pending",
			Help:        "Occurrences without an outcome yet, by stage.",
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
				Help:        "Namespaces where RBAC last denied a verb on Events, by verb and API group.",
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
func (m *metrics) committed(out []counter.Settled, now time.Time) {
	var written int64
	for i := range out {
		if n := out[i].Created + out[i].Written; n > 0 {
			written += n
			m.latency.WithLabelValues(strconv.FormatBool(out[i].Deferred)).Observe(now.Sub(out[i].Oldest.Recorded).Seconds())
		}
	}
	if written > 1 {
		m.merged.Add(float64(written - 1))
	}
}

func (m *metrics) answered(v apiclient.Verb, a apiclient.Answer, seconds float64) {
	m.requests.WithLabelValues(string(v), strconv.Itoa(a.Code)).Inc()
	if a.Code != 0 {
		m.duration.WithLabelValues(string(v)).Observe(seconds)
	}
}
