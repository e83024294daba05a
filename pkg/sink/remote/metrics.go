package remote

import (
	"errors"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

type metrics struct {
	requests *prometheus.CounterVec
	duration prometheus.Histogram
	items    *prometheus.CounterVec
	retries  prometheus.Counter
}

// newMetrics registers the sink's metrics; a nil registerer leaves them out.
func newMetrics(s *Sink, r prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "eventd_remote_requests_total",
			Help: "Batches sent to eventd by HTTP status code; 0 means no response.",
		}, []string{"code"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "eventd_remote_request_duration_seconds",
			Help:    "Response time of eventd to a batch.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
		}),
		items: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "eventd_remote_events_total",
			Help: "Events in batches that eventd has handled, by HTTP status code of the Event.",
		}, []string{"code"}),
		retries: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "eventd_remote_retries_total",
			Help: "Batches that were not handled, and are sent again.",
		}),
	}
	for _, code := range []int32{http.StatusOK, http.StatusTooManyRequests, http.StatusServiceUnavailable, 0} {
		m.requests.WithLabelValues(codeLabel(code))
	}
	for _, code := range []int32{http.StatusCreated, http.StatusAccepted, http.StatusTooManyRequests, http.StatusServiceUnavailable} {
		m.items.WithLabelValues(codeLabel(code))
	}
	if r == nil {
		return m, nil
	}
	gauge := func(name, help string, labels prometheus.Labels, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels}, value)
	}
	for _, c := range []prometheus.Collector{
		m.requests, m.duration, m.items, m.retries,
		gauge("eventd_remote_pending_events", "Events to send.", nil, func() float64 { return float64(s.Pending().Series) }),
		gauge("eventd_remote_pending_events_capacity", "Maximum number of Events to send. Above it, occurrences are dropped.", nil,
			func() float64 { return float64(s.options.MaxPendingItems) }),
		gauge("eventd_remote_pending_bytes", "Memory of pending occurrences.", nil, func() float64 { return float64(s.pendingBytes()) }),
		gauge("eventd_remote_pending_bytes_capacity", "Maximum memory of pending occurrences. Above it, occurrences are dropped.", nil,
			func() float64 { return float64(s.options.MaxPendingBytes) }),
		gauge("eventd_occurrences_pending", "Occurrences without an outcome yet, by stage.", prometheus.Labels{"station": "sink"},
			func() float64 { return float64(s.Pending().Occurrences) }),
	} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (s *Sink) pendingBytes() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes
}

// answered counts a request.
func (m *metrics) answered(err error, took time.Duration) {
	code := int32(http.StatusOK)
	if err != nil {
		code = 0
		if status, ok := errors.AsType[*apierrors.StatusError](err); ok {
			code = status.ErrStatus.Code
		}
	}
	m.requests.WithLabelValues(codeLabel(code)).Inc()
	if code != 0 {
		m.duration.Observe(took.Seconds())
	}
}
