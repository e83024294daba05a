package intake

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/eventd/eventd/pkg/occurrence"
)

type metrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	inFlight prometheus.Gauge
	arrivals arrivals // of inFlight
	// inFlightCapacity is 0 until NewHandler sets it.
	inFlightCapacity prometheus.Gauge
	// The rest are those of flowControl.
	refused        *prometheus.CounterVec
	aborted        *prometheus.CounterVec
	waitingForSeat prometheus.Gauge
	seatsCapacity  prometheus.Gauge
	// batched are Events of batches.
	batched *prometheus.CounterVec
}

// newMetrics registers the intake's metrics; a nil registerer leaves them out.
func newMetrics(i *Intake, r prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "eventd_intake_requests_total",
			Help: "Requests about Events by API, verb and HTTP status code.",
		}, []string{"api", "verb", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "eventd_intake_request_duration_seconds",
			Help:    "Duration of requests about Events by verb, including the write.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 16),
		}, []string{"verb"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "eventd_intake_in_flight",
			Help: "Requests about Events in flight.",
		}),
		inFlightCapacity: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "eventd_intake_in_flight_capacity",
			Help: "Maximum number of requests in flight. Above it, or above its share, a caller gets 429.",
		}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "eventd_intake_refused_total",
			Help: "Requests refused to protect others by reason: 401 for credentials, 431 for headers, otherwise 429.",
		}, []string{"reason"}),
		aborted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "eventd_intake_aborted_answers_total",
			Help: "Incomplete responses by reason: write (client left or did not read), share (of unread responses exceeded), too_large.",
		}, []string{"reason"}),
		waitingForSeat: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "eventd_intake_waiting_for_seat",
			Help: "Requests waiting for a seat.",
		}),
		seatsCapacity: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "eventd_intake_seats",
			Help: "Maximum number of requests decoded and handled at once; 0 until the server starts.",
		}),
		batched: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "eventd_intake_batched_events_total",
			Help: "Events in batches by HTTP status code. A batch is one request of eventd_intake_requests_total.",
		}, []string{"code"}),
	}
	for _, code := range []int{http.StatusCreated, http.StatusAccepted, http.StatusTooManyRequests, http.StatusServiceUnavailable} {
		m.batched.WithLabelValues(strconv.Itoa(code))
	}
	for _, reason := range []string{refusedNoCredentials, refusedRejected, refusedUnknownShare, refusedShare, refusedReviews, refusedSeats, refusedHeaders, refusedBatched, refusedUnread} {
		m.refused.WithLabelValues(reason)
	}
	for _, reason := range []string{abortedWrite, abortedShare, abortedTooLarge} {
		m.aborted.WithLabelValues(reason)
	}
	for verb, code := range map[string]int{"create": http.StatusCreated, "update": http.StatusOK, "patch": http.StatusOK} {
		m.duration.WithLabelValues(verb)
		for _, api := range []occurrence.API{occurrence.CoreV1, occurrence.EventsV1} {
			// Alerts use rates of the last two, so their first request must be an increase.
			for _, code := range []int{code, http.StatusTooManyRequests, http.StatusServiceUnavailable} {
				m.requests.WithLabelValues(apiLabel(api), verb, strconv.Itoa(code))
			}
		}
	}
	if r == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "eventd_intake_oldest_in_flight_seconds",
			Help: "Age of the oldest request in flight.",
		}, func() float64 { return m.arrivals.oldest().Seconds() }),
		m.requests, m.duration, m.inFlight, m.inFlightCapacity, m.refused, m.aborted, m.waitingForSeat, m.seatsCapacity, m.batched,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "eventd_intake_unwritten_bytes",
			Help: "Memory of responses that clients have not read.",
		}, func() float64 { return float64(i.unread.InUse()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "eventd_intake_unwritten_bytes_capacity",
			Help: "Maximum memory of unread responses. Above its share, a client's responses are aborted.",
		}, func() float64 { return maxUnreadBytes }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "eventd_intake_names",
			Help: "Posted names in the cache.",
		}, func() float64 { return float64(i.names.count()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "eventd_intake_names_capacity",
			Help: "Capacity of the cache of posted names.",
		}, func() float64 { return float64(i.options.MaxNames) }),
	} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// observe counts every request about Events by its status code, whichever filter or
// handler responds.
func (m *metrics) observe(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		info, _ := request.RequestInfoFrom(req.Context())
		if info == nil {
			next.ServeHTTP(w, req)
			return
		}
		api, ok := apiOf(info)
		if !ok {
			next.ServeHTTP(w, req)
			return
		}
		verb := verbLabel(info.Verb)
		begun := time.Now()
		call := callOf(req.Context())
		m.inFlight.Inc()
		m.arrivals.begin(&call.arrival)
		defer func() {
			m.arrivals.end(&call.arrival)
			m.inFlight.Dec()
			m.requests.WithLabelValues(apiLabel(api), verb, strconv.Itoa(call.response.code)).Inc()
			m.duration.WithLabelValues(verb).Observe(time.Since(begun).Seconds())
		}()
		next.ServeHTTP(w, req)
	})
}

func apiLabel(api occurrence.API) string {
	if api == occurrence.CoreV1 {
		return "core/v1"
	}
	return api.GroupVersion().String()
}

// verbLabel limits the label to known verbs.
func verbLabel(verb string) string {
	switch verb {
	case "create", "update", "patch", "get", "list", "watch", "delete", "deletecollection":
		return verb
	default:
		return "other"
	}
}
