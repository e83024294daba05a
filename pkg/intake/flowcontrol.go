package intake

import (
	"fmt"
	"net/http"
	"runtime"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/eventd/eventd/internal/shares"
	"github.com/eventd/eventd/pkg/occurrence"
)

const (
	// seatsPerCPU is how many requests are worked on at once for each CPU, and half as
	// many whose bodies are large. Only those wait with a seat, for the memory that
	// decoding takes, so more would only make them slower.
	seatsPerCPU = 2
	minSeats    = 4
)

// Why a request was refused before it was handled.
const (
	refusedNoCredentials  = "no_credentials"
	refusedRejected       = "rejected_credentials"
	refusedStrangersShare = "strangers_share"
	refusedShare          = "share"
	refusedReviews        = "reviews"
	refusedSeats          = "seats"
	refusedHeaders        = "headers"
)

// flowControl keeps callers from being in each other's way. A request
//
//   - is refused if it has no credentials, or some that were rejected a moment ago;
//   - takes a place among those in flight: of the flow of its caller if the
//     credentials were accepted lately or verify locally, or else of its address;
//   - is reviewed, when that is its caller's turn;
//   - takes a place of its flow, when it is known whose it is;
//   - takes a seat while it is decoded and handled, when that is its flow's turn,
//     and leaves it while it waits: for a name, for its write.
//
// It is safe for use by many goroutines.
type flowControl struct {
	callers             *callers
	requests, strangers *shares.Shares
	// largeSeats are for bodies that cost much to decode: those that wait until
	// others are decoded keep only each other waiting.
	seats, largeSeats *seats
	metrics           *metrics
}

func newFlowControl(o *ServerOptions) (*flowControl, error) {
	callers, err := newCallers(o.ReviewTTL, o.MaxInFlight)
	if err != nil {
		return nil, err
	}
	callers.issuer = o.Issuer
	callers.authn = o.Authenticator
	if o.Relay != nil {
		callers.ownName = o.Relay.peers.lastName
	}
	m := o.Intake.metrics
	count := max(seatsPerCPU*runtime.GOMAXPROCS(0), minSeats)
	m.seatsCapacity.Set(float64(count + count/2))
	seats, err := newSeats("intake", count, o.MaxInFlight, m.waitingForSeat)
	if err != nil {
		return nil, err
	}
	largeSeats, err := newSeats("intake-large", count/2, o.MaxInFlight, m.waitingForSeat)
	if err != nil {
		return nil, err
	}
	return &flowControl{
		callers:  callers,
		requests: shares.New(int64(o.MaxInFlight)),
		// As many again: all requests of a client that is not known yet wait for its
		// first review together, and take little until then.
		strangers:  shares.New(int64(o.MaxInFlight)),
		seats:      seats,
		largeSeats: largeSeats,
		metrics:    m,
	}, nil
}

// withCredentials refuses who presents nothing, or what was rejected a moment ago.
// It costs neither a place nor a review.
func (c *flowControl) withCredentials(next http.Handler) http.Handler {
	unauthorized := filters.Unauthorized(codecs)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		// The token that a browser can present is good for WebSockets only.
		req.Header.Del("Sec-Websocket-Protocol")
		presented, ok := c.callers.hasher.of(req)
		reason := ""
		switch {
		case !ok:
			reason = refusedNoCredentials
		case c.callers.rejected.contain(presented):
			reason = refusedRejected
		default:
			call := callOf(req.Context())
			call.credential = presented
			call.verified = c.callers.verified(req, presented)
			next.ServeHTTP(w, req)
			return
		}
		c.metrics.refused.WithLabelValues(reason).Inc()
		unauthorized.ServeHTTP(w, req)
	})
}

// HeaderBytes is what the URI and the headers of a request may take in one place among
// those in flight. A request with more takes more places.
const HeaderBytes = 16 << 10

// place is what a request has among those in flight. It has one goroutine at a time.
type place struct {
	shares *shares.Shares
	flow   flow
	size   int64
}

// newPlace returns a place that is not taken. It is no larger than what one flow can
// have.
func newPlace(of *shares.Shares, f flow, req *http.Request) *place {
	own, asserted := headerBytes(req)
	size := 1 + int64(own+asserted)/HeaderBytes
	return &place{of, f, min(size, max(1, of.Capacity()/4))}
}

func (p *place) take() bool { return p.shares.Acquire(p.flow, p.size) }

func (p *place) leave() { p.shares.Release(p.flow, p.size) }

// move takes the place among others of another flow. If there is none it stays where
// it is.
func (p *place) move(to *shares.Shares, f flow) bool {
	moved := &place{to, f, p.size}
	if !moved.take() {
		return false
	}
	p.leave()
	*p = *moved
	return true
}

// withPlace is before the authentication.
func (c *flowControl) withPlace(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		p, reason := newPlace(c.strangers, flowOfAddress(req), req), refusedStrangersShare
		if f, ok := c.knownFlow(req); ok {
			p.shares, p.flow, reason = c.requests, f, refusedShare
		}
		if !p.take() {
			c.refuse(w, req, reason)
			return
		}
		defer p.leave()
		callOf(req.Context()).place = p
		next.ServeHTTP(w, req)
	})
}

// knownFlow is whose a request will be found to be. It is false for unknown callers.
func (c *flowControl) knownFlow(req *http.Request) (flow, bool) {
	tenant, ok := c.callers.tenant(req.Context())
	if !ok {
		return flow{}, false
	}
	if tenant == replicas {
		asserted, err := decodeUser(req.Header[assertedUser])
		if err != nil {
			return flow{}, false
		}
		tenant = occurrence.TenantOf(asserted.GetName())
	}
	return flow{Tenant: tenant, Namespace: namespaceOf(req)}, true
}

// withFlow is after the authentication: from here it is certain whose a request is.
func (c *flowControl) withFlow(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		caller, ok := request.UserFrom(req.Context())
		call := callOf(req.Context())
		p := call.place
		if !ok || p == nil {
			refuse(w, req, apierrors.NewInternalError(fmt.Errorf("no user or place in the context")))
			return
		}
		f := flow{Tenant: occurrence.TenantOf(caller.GetName()), Namespace: namespaceOf(req)}
		call.tenant.Store(&f.Tenant)
		if (p.shares != c.requests || p.flow != f) && !p.move(c.requests, f) {
			c.refuse(w, req, refusedShare)
			return
		}
		next.ServeHTTP(w, req)
	})
}

// seated returns a handler that has a seat while it works.
func (c *flowControl) seated(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		ctx, cancel := early(req.Context())
		defer cancel()
		call := callOf(ctx)
		s := &seat{seats: c.seats, flow: call.place.flow}
		if call.decoding != nil && isLarge(call.decoding.cost) {
			s.seats = c.largeSeats
		}
		if !s.take(ctx) {
			if ctx.Err() != nil {
				refuse(w, req, timeoutError(ctx.Err()))
				return
			}
			c.refuse(w, req, refusedSeats)
			return
		}
		defer s.end()
		call.seat = s
		next(w, req)
	}
}

// refuse answers 429 what another moment may be better for.
func (c *flowControl) refuse(w http.ResponseWriter, req *http.Request, reason string) {
	c.metrics.refused.WithLabelValues(reason).Inc()
	refuse(w, req, tooMany(reason))
}

func tooMany(reason string) *apierrors.StatusError {
	return apierrors.NewTooManyRequests(tooManyTexts[reason], retryAfterSeconds)
}

var tooManyTexts = map[string]string{
	refusedStrangersShare: "too many requests from this address whose callers are not known yet",
	refusedShare:          "too many requests of this caller are in flight",
	refusedReviews:        "the apiserver is asked about too many callers",
	refusedSeats:          "too many requests of this caller wait to be handled",
}

func namespaceOf(req *http.Request) string {
	if info, ok := request.RequestInfoFrom(req.Context()); ok {
		return info.Namespace
	}
	return ""
}
