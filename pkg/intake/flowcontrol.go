package intake

import (
	"fmt"
	"net/http"
	"runtime"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/eventd/eventd/internal/fairqueue"
	"github.com/eventd/eventd/internal/shares"
)

const (
	// seatsPerCPU is the number of requests handled at once for each CPU, with half as
	// many in addition for large bodies. With a seat, a request waits only for memory to
	// decode a large body, so more seats would not increase the throughput.
	seatsPerCPU = 2
	minSeats    = 4
)

// Reasons for refusing a request before it is handled.
const (
	refusedNoCredentials = "no_credentials"
	refusedRejected      = "rejected_credentials"
	refusedUnknownShare  = "strangers_share"
	refusedShare         = "share"
	refusedReviews       = "reviews"
	refusedSeats         = "seats"
	refusedHeaders       = "headers"
	refusedBatched       = "batched"
	refusedUnread        = "unread"
)

// flowControl isolates callers from each other. A request
//
//   - is refused if it has no credentials, or recently rejected ones;
//   - counts as in flight: in the flow of its caller if the credentials were accepted
//     recently or verify locally, otherwise in that of its address;
//   - is authenticated, with a TokenReview that waits for its fair turn;
//   - moves to the flow of the authenticated caller, and is refused if its tenant or user has too many unread answers;
//   - moves to the flow of the user that is authorized, if it was in that of users without rights or unproven ones;
//   - waits for a seat of its flow, has it while it is decoded and handled, and releases
//     it while it waits for a name or for its write.
//
// It is safe for use by many goroutines.
type flowControl struct {
	callers *callers
	// inFlight are the requests of known callers, unknown those of unknown callers.
	inFlight, unknown *shares.Shares
	maxBody           int64
	// largeSeats are for large bodies, so that small ones do not wait for them.
	seats, largeSeats *fairqueue.Seats
	metrics           *metrics
	// queries, and requests for paths such as /metrics, are served within inQueries, and not within inFlight, and
	// those of unknown callers within unknownInQueries until they are authenticated. They are nil without Queries.
	queries                     *queries
	inQueries, unknownInQueries *shares.Shares
	// batched are the Events of batches.
	batched *shares.Shares
	// crowds are those of the shares of requests: strangers and queries delay no reports of known callers.
	crowds map[*shares.Shares]*crowd
	// unread are those of unreadResponses.
	unread *shares.Shares
	// paths are those that need a right which not everybody has.
	paths map[string]bool
}

func newFlowControl(o *ServerOptions) (*flowControl, error) {
	callers, err := newCallers(o.ReviewTTL, o.MaxInFlight)
	if err != nil {
		return nil, err
	}
	callers.certificates.options, callers.authn = o.ClientCA, o.Authenticator
	m := o.Intake.metrics
	count := max(seatsPerCPU*runtime.GOMAXPROCS(0), minSeats)
	m.seatsCapacity.Set(float64(count + count/2))
	seats, err := fairqueue.New("intake", count, o.MaxInFlight, m.waitingForSeat)
	if err != nil {
		return nil, err
	}
	largeSeats, err := fairqueue.New("intake-large", count/2, o.MaxInFlight, m.waitingForSeat)
	if err != nil {
		return nil, err
	}
	c := &flowControl{
		callers:  callers,
		inFlight: shares.New(int64(o.MaxInFlight)),
		// Two thirds as many again: all requests of an unknown client wait together for its first review.
		unknown:    shares.New(int64(max(1, 2*o.MaxInFlight/3))),
		maxBody:    o.Intake.options.MaxBodyBytes,
		seats:      seats,
		largeSeats: largeSeats,
		metrics:    m,
		inQueries:  shares.New(maxQueries),
		// As many again, as of reports.
		unknownInQueries: shares.New(maxQueries),
		batched:          shares.New(maxBatched),
		crowds:           make(map[*shares.Shares]*crowd),
		unread:           o.Intake.unread,
		paths:            make(map[string]bool),
	}
	for _, of := range []*shares.Shares{c.inFlight, c.unknown, c.inQueries, c.unknownInQueries} {
		c.crowds[of] = newCrowd(of.Capacity())
	}
	return c, nil
}

// withCredentials refuses requests without credentials, and those with recently rejected
// ones. They do not count as in flight, and are not reviewed.
func (c *flowControl) withCredentials(next http.Handler) http.Handler {
	unauthorized := filters.Unauthorized(codecs)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		// A browser sends its token in this header, for WebSockets only.
		req.Header.Del("Sec-Websocket-Protocol")
		presented, ok := c.callers.hasher.of(req)
		reason := ""
		switch {
		case !ok:
			reason = refusedNoCredentials
		case c.callers.rejected.contains(presented):
			reason = refusedRejected
		default:
			call := callOf(req.Context())
			call.credential = presented
			if Forwarded(req) {
				call.token = bearerToken(req)
			}
			call.verified = c.callers.verified(req, presented)
			next.ServeHTTP(w, req)
			return
		}
		c.metrics.refused.WithLabelValues(reason).Inc()
		unauthorized.ServeHTTP(w, req)
	})
}

const (
	// RequestBytes is the memory of the URI, the headers and the body of a request that counts as one
	// request in flight. A request with more counts as several.
	RequestBytes = 16 << 10
	// copiesOfABody are those of the server, of the handler, the decoded one, and the rest of the buffers.
	// TestRequestsThatWaitTakeNoMoreThanIsSaid measures them.
	copiesOfABody = 4
)

// inFlight is what a request counts as among the requests in flight. It is used by one
// goroutine at a time. The zero value is none.
type inFlight struct {
	shares *shares.Shares
	flow   flow
	size   int64
}

// newInFlight returns what a request counts as, before it is acquired: at most what one
// flow can have.
func (c *flowControl) newInFlight(of *shares.Shares, f flow, req *http.Request) inFlight {
	own, asserted := headerBytes(req)
	bytes := int64(own+asserted) + c.bodyBytes(of, req)
	return inFlight{of, f, min(1+bytes/RequestBytes, max(1, of.Capacity()/4))}
}

// bodyBytes returns the memory that the body of a request may take. That of an unknown caller is not read, nor is one that
// is not about Events: the server buffers a part of it.
func (c *flowControl) bodyBytes(of *shares.Shares, req *http.Request) int64 {
	body := req.ContentLength
	if body < 0 { // it is not known
		body = c.maxBody
	}
	if info, ok := request.RequestInfoFrom(req.Context()); ok && info.IsResourceRequest && of == c.inFlight {
		return copiesOfABody * min(body, c.maxBody)
	}
	return min(body, UploadBufferBytes)
}

func (r *inFlight) acquire() bool { return r.shares.Acquire(r.flow, r.size) }

func (r *inFlight) release() { r.shares.Release(r.flow, r.size) }

// moveTo acquires another one, and releases the former one. If that fails, it changes nothing.
func (r *inFlight) moveTo(moved inFlight) bool {
	if moved == *r {
		return true
	}
	if !moved.acquire() {
		return false
	}
	r.release()
	*r = moved
	return true
}

// withInFlightLimit limits the requests in flight. It is before authentication.
func (c *flowControl) withInFlightLimit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		call, known, unknown := callOf(req.Context()), c.inFlight, c.unknown
		if c.queries.covers(req) {
			known, unknown = c.inQueries, c.unknownInQueries
			call.presented = asPresented(req)
		}
		r, reason := &call.inFlight, refusedShare
		if f, ok := c.knownFlow(req); ok {
			*r = c.newInFlight(known, f, req)
		} else {
			*r, reason = c.newInFlight(unknown, flowOfAddress(req), req), refusedUnknownShare
		}
		if !r.acquire() {
			c.refuseFlow(w, req, r.shares, r.flow, reason)
			return
		}
		defer r.release()
		next.ServeHTTP(w, req)
	})
}

// knownFlow predicts the flow of a request, and returns false for unknown callers.
func (c *flowControl) knownFlow(req *http.Request) (flow, bool) {
	call := callOf(req.Context())
	known, ok := c.callers.holder(req.Context())
	call.granted = time.Since(known.rights.granted) < grantedPeriod
	switch {
	case known.rights.some():
		call.standing.Store(entitled)
	case known.rights.none() || !c.needsRight(req):
		call.standing.Store(rightless)
	}
	if !ok {
		return flow{}, false
	}
	user := known.user
	switch user {
	case replicas:
		asserted, err := decodeUser(req.Header[AssertedUserHeader])
		if err != nil {
			return flow{}, false
		}
		user = asserted.GetName()
	case frontProxy:
		// So that one of its users does not take the places of all of them.
		if proxied := req.Header.Get(proxiedUserHeader); proxied != "" {
			user = proxied
		}
	}
	return call.flowOf(user, namespaceOf(req)), true
}

// needsRight reports whether a request needs a right that not everybody has.
func (c *flowControl) needsRight(req *http.Request) bool {
	info, ok := request.RequestInfoFrom(req.Context())
	return ok && (info.IsResourceRequest || c.paths[info.Path])
}

// decided is called when a request was authorized, with nil or the Status of the answer, which it returns. A caller
// without rights is charged with those of its tenant, and one that has the right with its own flow. If that has no
// place for the request, it returns another Status.
func (c *flowControl) decided(req *http.Request, err error) error {
	call := callOf(req.Context())
	switch {
	case err == nil && c.needsRight(req):
		if !call.granted {
			c.callers.known.decided(call.credential, true)
		}
		r := &call.inFlight
		own := inFlight{r.shares, shares.FlowOf(call.user, r.flow.Namespace), r.size}
		if call.standing.Swap(entitled) != entitled && !r.moveTo(own) {
			c.metrics.refused.WithLabelValues(refusedShare).Inc()
			return tooMany(refusedShare)
		}
	case err != nil && apierrors.IsForbidden(err):
		c.callers.known.decided(call.credential, false)
		call.standing.Store(rightless)
	}
	return err
}

// proxiedUserHeader is the header in which a kube-apiserver passes the user on to an aggregated API,
// whatever other headers are configured. It only predicts the flow: the authentication reads the configured
// headers, and from a front proxy only.
const proxiedUserHeader = "X-Remote-User"

// withCallerFlow moves a request to the flow of its caller. It is after authentication.
func (c *flowControl) withCallerFlow(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		caller, ok := request.UserFrom(req.Context())
		call := callOf(req.Context())
		r := &call.inFlight
		if !ok || r.shares == nil {
			refuse(w, req, apierrors.NewInternalError(fmt.Errorf("no user or request in flight in the context")))
			return
		}
		f := call.flowOf(caller.GetName(), namespaceOf(req))
		to := c.inFlight
		if c.queries.covers(req) {
			to = c.inQueries
		}
		call.user = caller.GetName()
		call.authenticated.Store(true)
		if !r.moveTo(c.newInFlight(to, f, req)) {
			c.refuseFlow(w, req, to, f, refusedShare)
			return
		}
		c.enter(w, req, next)
	})
}

// enter serves a request of an authenticated caller that counts as in flight, unless its response would be aborted
// because the caller has too many unread ones.
func (c *flowControl) enter(w http.ResponseWriter, req *http.Request, next http.Handler) {
	call, unread := callOf(req.Context()), c.unread
	if c.queries.covers(req) {
		unread = c.queries.unread
	}
	if unread.Available(call.flow(req)) < minUnreadBytes {
		c.refuse(w, req, refusedUnread)
		return
	}
	next.ServeHTTP(w, req)
}

// withSeat handles a request with a seat.
func (c *flowControl) withSeat(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		call := callOf(req.Context())
		s := &seat{seats: c.seats, flow: call.inFlight.flow}
		switch {
		case c.queries.covers(req):
			s.seats = c.queries.seats
		case isLarge(call.decoding.cost):
			s.seats = c.largeSeats
		}
		if !s.tryAcquire() && !c.awaitSeat(w, req, s) {
			return
		}
		defer s.end()
		call.seat = s
		next(w, req)
	}
}

// awaitSeat waits for a seat. If there is none, it responds and returns false.
func (c *flowControl) awaitSeat(w http.ResponseWriter, req *http.Request, s *seat) bool {
	ctx, cancel := early(req.Context())
	defer cancel()
	if s.acquire(ctx) {
		return true
	}
	if ctx.Err() != nil {
		refuse(w, req, timeoutError(ctx.Err()))
	} else {
		c.refuse(w, req, refusedSeats)
	}
	return false
}

// refuseFlow responds 429 to a request for which a flow has no place in shares.
func (c *flowControl) refuseFlow(w http.ResponseWriter, req *http.Request, of *shares.Shares, f flow, reason string) {
	seconds := retryAfterSeconds
	if of.UsedBy(f) == 0 {
		seconds = c.crowds[of].retryAfter(time.Now())
	}
	c.refuseFor(w, req, reason, seconds)
}

// refuse responds 429, counted by reason.
func (c *flowControl) refuse(w http.ResponseWriter, req *http.Request, reason string) {
	c.refuseFor(w, req, reason, retryAfterSeconds)
}

func (c *flowControl) refuseFor(w http.ResponseWriter, req *http.Request, reason string, seconds int) {
	c.metrics.refused.WithLabelValues(reason).Inc()
	refuse(w, req, tooManyFor(reason, seconds))
}

func tooMany(reason string) *apierrors.StatusError { return tooManyFor(reason, retryAfterSeconds) }

func tooManyFor(reason string, seconds int) *apierrors.StatusError {
	return apierrors.NewTooManyRequests(tooManyTexts[reason], seconds)
}

var tooManyTexts = map[string]string{
	refusedUnknownShare: "too many requests of unknown callers from this address are in flight",
	refusedShare:        "too many requests of this caller are in flight",
	refusedReviews:      "too many reviews are waiting for the apiserver",
	refusedSeats:        "too many requests of this caller wait to be handled",
	refusedBatched:      "too many events in batches of this caller are in flight",
	refusedUnread:       "too many responses to this caller have not been read",
}

func namespaceOf(req *http.Request) string {
	if info, ok := request.RequestInfoFrom(req.Context()); ok {
		return info.Namespace
	}
	return ""
}
