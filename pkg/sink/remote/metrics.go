package remote

import (
	"errors"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/eventd/eventd/internal/instrument"
)

type metrics struct {
	requests *prometheus.CounterVec
	duration prometheus.Histogram
	items    *prometheus.CounterVec
	retries  prometheus.Counter
}

// newMetrics registers the sink's metrics; a nil registerer leaves them out.
func newMetrics(s *Sink, r prometheus.Registerer) (*metrics, error) {
	set := instrument.New(r)
	m := &metrics{
		requests: set.CounterVec("eventd_remote_requests_total",
			"Batches sent to eventd by HTTP status code; 0 means no response.", "code"),
		duration: set.Histogram("eventd_remote_request_duration_seconds", "Response time of eventd to a batch.", prometheus.ExponentialBuckets(0.001, 2, 15)),
		items: set.CounterVec("eventd_remote_events_total",
			"Events in batches that eventd has handled, by HTTP status code of the Event.", "code"),
		retries: set.Counter("eventd_remote_retries_total", "Batches that were not handled, and are sent again."),
	}
	for _, code := range []int32{http.StatusOK, http.StatusTooManyRequests, http.StatusServiceUnavailable, 0} {
		m.requests.WithLabelValues(codeLabel(code))
	}
	for _, code := range []int32{http.StatusCreated, http.StatusAccepted, http.StatusTooManyRequests, http.StatusServiceUnavailable} {
		m.items.WithLabelValues(codeLabel(code))
	}
	set.GaugeFunc("eventd_remote_pending_events", "Events to send.", func() float64 { return float64(s.Pending().Series) })
	set.GaugeFunc("eventd_remote_pending_events_capacity", "Maximum number of Events to send. Above it, occurrences are dropped.",
		func() float64 { return float64(s.options.MaxPendingItems) })
	set.GaugeFunc("eventd_remote_pending_bytes", "Memory of pending occurrences.", func() float64 { return float64(s.pendingBytes()) })
	set.GaugeFunc("eventd_remote_pending_bytes_capacity", "Maximum memory of pending occurrences. Above it, occurrences are dropped.",
		func() float64 { return float64(s.options.MaxPendingBytes) })
	set.With(prometheus.Labels{"station": "sink"}).GaugeFunc("eventd_occurrences_pending", "Occurrences without an outcome yet, by stage.", func() float64 { return float64(s.Pending().Occurrences) })
	return m, set.Err()
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
