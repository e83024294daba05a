package intake

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/eventd/eventd/internal/instrument"
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
	set := instrument.New(r)
	m := &metrics{
		requests: set.CounterVec("eventd_intake_requests_total",
			"Requests about Events by API, verb and HTTP status code.", "api", "verb", "code"),
		duration: set.HistogramVec("eventd_intake_request_duration_seconds",
			"Duration of requests about Events by verb, including the write.", prometheus.ExponentialBuckets(0.001, 2, 16), "verb"),
		inFlight: set.Gauge("eventd_intake_in_flight", "Requests about Events in flight."),
		inFlightCapacity: set.Gauge("eventd_intake_in_flight_capacity",
			"Maximum number of requests in flight. Above it, or above its share, a caller gets 429."),
		refused: set.CounterVec("eventd_intake_refused_total",
			"Requests refused to protect others by reason: 401 for credentials, 431 for headers, otherwise 429.", "reason"),
		aborted: set.CounterVec("eventd_intake_aborted_answers_total",
			"Incomplete responses by reason: write (client left or did not read), share (of unread responses exceeded), too_large.", "reason"),
		waitingForSeat: set.Gauge("eventd_intake_waiting_for_seat", "Requests waiting for a seat."),
		seatsCapacity: set.Gauge("eventd_intake_seats",
			"Maximum number of requests decoded and handled at once; 0 until the server starts."),
		batched: set.CounterVec("eventd_intake_batched_events_total",
			"Events in batches by HTTP status code. A batch is one request of eventd_intake_requests_total.", "code"),
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
	set.GaugeFunc("eventd_intake_oldest_in_flight_seconds", "Age of the oldest request in flight.", func() float64 { return m.arrivals.oldest().Seconds() })
	set.GaugeFunc("eventd_intake_unwritten_bytes", "Memory of responses that clients have not read.", func() float64 { return float64(i.unread.InUse()) })
	set.GaugeFunc("eventd_intake_unwritten_bytes_capacity",
		"Maximum memory of unread responses. Above its share, a client's responses are aborted.", func() float64 { return float64(i.options.MaxUnreadBytes) })
	set.GaugeFunc("eventd_intake_names", "Posted names in the cache.", func() float64 { return float64(i.names.count()) })
	set.GaugeFunc("eventd_intake_names_capacity", "Capacity of the cache of posted names.", func() float64 { return float64(i.options.MaxNames) })
	return m, set.Err()
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
