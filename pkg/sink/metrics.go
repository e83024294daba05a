package sink

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/eventd/eventd/internal/instrument"
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
	set := instrument.New(r)
	m := &metrics{
		requests: set.CounterVec("eventd_sink_requests_total",
			"Requests to the apiserver by verb and HTTP status code; 0 means no response.", "verb", "code"),
		duration: set.HistogramVec("eventd_sink_request_duration_seconds", "Response time of the apiserver by verb.", prometheus.ExponentialBuckets(0.001, 2, 15), "verb"),
		inFlight: set.Gauge("eventd_sink_requests_in_flight", "Requests to the apiserver in flight."),
		failed: set.CounterVec("eventd_sink_requests_failed_total",
			"Requests that did not write, by class: exists (changed: planned again), gone (expired: created again), refused (dropped or retried differently), retry (rejected for now), unreachable (no connection), lost (no conclusive response).", "class"),
		retries: set.CounterVec("eventd_sink_retries_total",
			"Delays before a retry, by class of the preceding error.", "class"),
		merged: set.Counter("eventd_sink_merged_total",
			"Occurrences written together with another one of their series."),
		unique: set.CounterVec("eventd_sink_unique_names_total",
			"Events created under random names, by reason: occupied (by foreign Events), annotations_removed (by admission), forbidden (to change the stored Event).", "reason"),
		early: set.Counter("eventd_sink_early_writes_total",
			"Deferred writes made early, since no follower held an occurrence within a second."),
		latency: set.HistogramVec("eventd_sink_commit_latency_seconds",
			"Time from recording to the write, of the oldest occurrence in each write.", prometheus.ExponentialBuckets(0.005, 2.5, 14), "deferred"),
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
	set.GaugeFunc("eventd_sink_abandoned_requests",
		"Requests not returned after their timeout. Each keeps a goroutine.", func() float64 { return float64(s.abandonedCount()) })
	set.GaugeFunc("eventd_sink_concurrency_limit",
		"Current adaptive concurrency limit, in series. Half as many more may hang.", func() float64 { return float64(s.concurrencyLimit()) })
	set.GaugeFunc("eventd_sink_concurrency_ceiling", "Upper bound of the concurrency limit.", func() float64 { return float64(s.options.Concurrency) })
	set.GaugeFunc("eventd_sink_rate_limit",
		"Rate limit of requests to the apiserver, per second; +Inf if unlimited.", func() float64 { return s.options.QPS })
	set.GaugeFunc("eventd_sink_overdue_seconds", "How long the most overdue write is overdue.", s.locked(func() float64 { return s.byDeadline.longest(time.Now()).Seconds() }))
	set.GaugeFunc("eventd_sink_oldest_pending_seconds",
		"Age of the oldest pending occurrence, deferred or not.", s.locked(func() float64 { return s.byRecorded.longest(time.Now()).Seconds() }))
	set.GaugeFunc("eventd_sink_pending_series", "Series with pending occurrences.", func() float64 { return float64(s.Pending().Series) })
	set.GaugeFunc("eventd_sink_deferred_series",
		"Pending series whose next write has a deadline in the future.", s.locked(func() float64 { return float64(s.deferred) }))
	set.GaugeFunc("eventd_sink_pending_series_capacity", "Maximum number of pending series.", func() float64 { return float64(s.options.MaxPendingSeries) })
	set.GaugeFunc("eventd_sink_pending_bytes", "Memory of pending occurrences.", s.locked(func() float64 { return float64(s.total.bytes) }))
	set.GaugeFunc("eventd_sink_pending_bytes_capacity",
		"Maximum memory of pending occurrences. Above it, occurrences are dropped.", func() float64 { return float64(s.options.MaxPendingBytes) })
	set.GaugeFunc("eventd_sink_idle_series", "Remembered series without pending occurrences.", s.locked(func() float64 {
		if s.idle == nil { // the sink is closed
			return 0
		}
		return float64(s.idle.Len())
	}))
	set.GaugeFunc("eventd_sink_idle_series_capacity",
		"Maximum number of remembered series, if each is of one reporter and all are in one namespace.", func() float64 { return float64(s.options.MaxIdleSeries) })
	addDenied(set, s)
	if s.journal != nil {
		addFollowers(set, s)
	}
	set.With(prometheus.Labels{"station": "sink"}).GaugeFunc("eventd_occurrences_pending", "Occurrences without an outcome yet, by stage.", func() float64 { return float64(s.Pending().Occurrences) })
	return m, set.Err()
}

// locked reads a gauge under the mutex.
func (s *Sink) locked(read func() float64) func() float64 {
	return func() float64 {
		s.mu.Lock()
		defer s.mu.Unlock()
		return read()
	}
}

// addDenied adds a gauge for each right and API group.
func addDenied(set *instrument.Set, s *Sink) {
	for right := range rights {
		for group, api := range map[string]occurrence.API{"core": occurrence.CoreV1, "events.k8s.io": occurrence.EventsV1} {
			set.With(prometheus.Labels{"verb": right.String(), "group": group}).GaugeFunc("eventd_sink_denied_namespaces",
				"Namespaces where RBAC last denied a verb on Events, by verb and API group.", func() float64 { return float64(s.deniedNamespaces(right, api)) })
		}
	}
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
