package intake

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	endpointfilters "k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/server/filters"
	"k8s.io/apiserver/pkg/server/healthz"

	"github.com/eventd/eventd/internal/violations"
	"github.com/eventd/eventd/pkg/occurrence"
)

const (
	// DefaultMaxInFlight is the default limit of requests in flight, each with up to RequestBytes.
	DefaultMaxInFlight = 384
	// requestTimeout is the maximum timeout of a request. The apiserver's handlers wait
	// up to 34 s for a write.
	requestTimeout = 60 * time.Second
	// reviewTTL is for how long kube components cache a review by default.
	reviewTTL = 10 * time.Second
	// abandonAfter is until when a body may arrive. It is later than the deadline of its
	// request, or both would respond at once.
	abandonAfter = requestTimeout + 5*time.Second
)

// ServerOptions are the options of NewHandler.
type ServerOptions struct {
	// Intake is required.
	Intake *Intake
	// Authenticator and Authorizer are required. They decide about all requests except
	// health probes, metrics and discovery included. If one cannot decide, the request
	// gets 503.
	Authenticator authenticator.Request
	Authorizer    Authorizer
	// QueryAuthorizer, if not nil, decides about queries in place of Authorizer. With a client of its own,
	// reviews of queries and of reports do not wait for each other.
	QueryAuthorizer Authorizer
	// Forwarder, if not nil, has only the leader of several replicas record. Without
	// one this process records everything.
	Forwarder Forwarder
	// Replication, if not nil, serves a session with another replica, which follows this
	// one: a POST of ReplicationPath. It must return soon after ctx has ended or the session
	// is closed. There are at most 4 sessions at once. It needs a Forwarder.
	Replication func(ctx context.Context, session io.ReadWriteCloser) error
	// ReplicaState, if not nil, accepts what another replica reports of itself: a POST of ReplicaStatePath.
	// It must not block. Its error is answered 400. It needs a Forwarder.
	ReplicaState func(replica string, state []byte) error
	// ClientCA, if not nil, returns the CAs by which Authenticator verifies client certificates, and false if there are
	// none. As long as it returns the same Roots, a certificate is not verified again for each report.
	ClientCA func() (x509.VerifyOptions, bool)
	// MaxInFlight limits the requests of known callers in flight. Above it, or above its
	// share of it, a caller gets 429. 0 is DefaultMaxInFlight.
	MaxInFlight int
	// ReviewTTL and AccessReviewTTL are for how long Authenticator and Authorizer cache
	// successful reviews. 0 is 10 s; a negative value means that they do not.
	ReviewTTL, AccessReviewTTL time.Duration
	// AccessReviewQPS limits how often per second Authorizer is called for a decision that it has not cached, with
	// twice as many at once after a quiet time. 0 is DefaultAccessReviewQPS, infinity no limit.
	AccessReviewQPS float64
	// Livez are the checks of /livez and /healthz, Readyz those of /readyz. These paths
	// need no authentication, and work without the apiserver.
	Livez, Readyz []healthz.HealthChecker
	// Role, if not nil, is the role of the process among its replicas. Verbose probes
	// have it in a line of its own.
	Role func() string
	// Metrics, if not nil, serves /metrics.
	Metrics http.Handler
	// Paths are more handlers by path, such as /statusz. As for /metrics, a caller needs the right to get the
	// path.
	Paths map[string]http.Handler
	// Queries, if not nil, serves an API of GETs.
	Queries Queries
	// QueriesOnly leaves out the Events API: nothing is recorded, and reports are answered 404.
	QueriesOnly bool
}

func (o *ServerOptions) validate() error {
	var v violations.List
	v.AddIf(o.Intake == nil, "Intake is required")
	v.AddIf(o.Authenticator == nil, "Authenticator is required")
	v.AddIf(o.Authorizer == nil, "Authorizer is required")
	v.AddIf(o.Replication != nil && o.Forwarder == nil, "Forwarder, with Replication, is required")
	v.AddIf(o.ReplicaState != nil && o.Forwarder == nil, "Forwarder, with ReplicaState, is required")
	v.AddIf(!(o.AccessReviewQPS >= 0), "AccessReviewQPS must not be negative, but is %v", o.AccessReviewQPS)
	v.AddIf(o.MaxInFlight < 0, "MaxInFlight must not be negative, but is %d", o.MaxInFlight)
	return v.Err()
}

// NewHandler returns the handler of a server: the apiserver's filters around the Events
// API, discovery, health and metrics. It also limits the size of all copy operations of
// one JSON patch, in the whole process: to the MaxBodyBytes of its intake, at most 3
// MiB, unless a lower limit is set. The response writers must support SetReadDeadline, as
// those of net/http do, or reports of client-go whose bodies do not arrive never end.
func NewHandler(options ServerOptions) (http.Handler, error) {
	filters, routes, err := newServer(options)
	if err != nil {
		return nil, fmt.Errorf("intake: %w", err)
	}
	return chain(filters, routes), nil
}

// newServer returns the filters of a server, and the handler behind them.
func newServer(options ServerOptions) ([]filter, http.Handler, error) {
	if err := options.validate(); err != nil {
		return nil, nil, err
	}
	limitCopies(options.Intake.options.MaxBodyBytes)
	if options.MaxInFlight == 0 {
		options.MaxInFlight = DefaultMaxInFlight
	}
	options.ReviewTTL = cmp.Or(options.ReviewTTL, reviewTTL)
	options.AccessReviewTTL = cmp.Or(options.AccessReviewTTL, reviewTTL)
	control, err := newFlowControl(&options)
	if err != nil {
		return nil, nil, err
	}
	if options.Queries != nil {
		if control.queries, err = newQueries(&options, control); err != nil {
			return nil, nil, err
		}
	}
	refused := options.Intake.metrics.refused.WithLabelValues(refusedReviews)
	limit := accessReviews(cmp.Or(options.AccessReviewQPS, DefaultAccessReviewQPS))
	if options.Authorizer, err = newSharedAuthorizer(options.Authorizer, limit, options.MaxInFlight, options.AccessReviewTTL, refused); err != nil {
		return nil, nil, err
	}
	options.Intake.metrics.inFlightCapacity.Set(float64(options.MaxInFlight))
	routes := &router{apis: make(map[occurrence.API]api), paths: newDiscovery(!options.QueriesOnly, options.Queries), queries: control.queries}
	apis := []occurrence.API{occurrence.CoreV1, occurrence.EventsV1}
	if options.QueriesOnly {
		apis = nil
	}
	inTerm := withoutTerm
	if options.Forwarder != nil {
		inTerm = handleOrForward
	}
	for _, a := range apis {
		handlers, err := newAPI(options.Intake, a, options.Authorizer)
		if err != nil {
			return nil, nil, err
		}
		behind := func(check func(http.HandlerFunc) http.HandlerFunc) func(http.HandlerFunc) http.HandlerFunc {
			return func(handler http.HandlerFunc) http.HandlerFunc {
				return options.Intake.withBody(check(inTerm(control.withSeat(handler))))
			}
		}
		routes.apis[a] = handlers.each(behind(options.Intake.decoding.withBodyCheck(options.Intake.options.MaxBodyBytes)))
		routes.apis[a][batchVerb] = behind(options.Intake.withBatchCheck)(newBatches(&options, a, control).serve)
	}
	if options.Metrics != nil {
		control.paths["/metrics"] = true
		routes.paths["/metrics"] = control.withSeat(options.Metrics.ServeHTTP)
	}
	for path, handler := range options.Paths {
		control.paths[path] = true
		routes.paths[path] = control.withSeat(handler.ServeHTTP)
	}
	return newFilters(&options, control), routes, nil
}

// filter is one of those that every request passes.
type filter struct {
	name string
	wrap func(http.Handler) http.Handler
}

// chain puts filters around a handler. A request passes the first one first.
func chain(all []filter, handler http.Handler) http.Handler {
	for _, f := range slices.Backward(all) {
		handler = f.wrap(handler)
	}
	return handler
}

// newFilters returns all filters of a server, in the order in which a request passes them, whoever sends it and
// whatever it is. Behind them, a router knows what it asks for.
func newFilters(o *ServerOptions, control *flowControl) []filter {
	notLongRunning := func(*http.Request, *request.RequestInfo) bool { return false }
	authn := notAnonymous(o.Authenticator)
	if o.Forwarder != nil {
		authn = orPeer(o.Forwarder, authn)
	}
	authn = control.callers.limit(authn)
	unread := newUnreadResponses(o.Intake)
	if control.queries != nil {
		control.queries.authn = authn
		unread.queries = control.queries.unread
	}
	all := []filter{
		{"stack", withStack},
		{"audit ID", endpointfilters.WithAuditInit},
		{"time of arrival", endpointfilters.WithRequestReceivedTimestamp},
		// Around all filters that respond, so that a request has released everything before the server waits for
		// its client to read.
		{"response", unread.buffered},
		// Before any filter reads the URL.
		{"header limit", o.Intake.metrics.withHeaderLimit},
		{"request info", func(next http.Handler) http.Handler { return endpointfilters.WithRequestInfo(next, newResolver()) }},
		{"metrics", o.Intake.metrics.observe},
		{"recovery", withRecovery},
		{"log", filters.WithHTTPLogging},
		{"cache control", endpointfilters.WithCacheControl},
		{"health", func(next http.Handler) http.Handler { return withHealth(next, o) }},
		{"credentials", control.withCredentials},
		{"warnings", withWarnings},
		{"timeout", withValidTimeout},
		{"deadline", func(next http.Handler) http.Handler {
			return endpointfilters.WithRequestDeadline(withTimeoutAnswer(next), nil, nil, notLongRunning, codecs, requestTimeout)
		}},
		// Before authentication, so that requests that wait for it count.
		{"requests in flight", control.withInFlightLimit},
	}
	add := func(name string, wrap func(http.Handler) http.Handler) { all = append(all, filter{name, wrap}) }
	if o.Forwarder != nil && !o.QueriesOnly {
		add("leader", func(next http.Handler) http.Handler { return awaitLeader(next, o.Forwarder) })
	}
	add("authentication", func(next http.Handler) http.Handler { return withAuthentication(next, authn, control) })
	if o.ReplicaState != nil {
		add("replica state", func(next http.Handler) http.Handler { return withReplicaStates(next, o.ReplicaState) })
	}
	if o.Replication != nil {
		add("replication", newSessions(o).begin)
	}
	add("flow of the caller", control.withCallerFlow)
	add("impersonation", withoutImpersonation)
	add("authorization", func(next http.Handler) http.Handler { return withAuthorization(next, o.Authorizer, control) })
	return all
}

// stackBytes is about what the stack of a report takes.
const stackBytes = 16 << 10

// withStack has the stack of a goroutine grow once, while there is little on it. A server handles each request in a
// new goroutine, whose stack would grow four times, and each time all that is on it would be copied and adjusted:
// a quarter of the time that a report takes.
func withStack(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		growStack()
		next.ServeHTTP(w, req)
	})
}

//go:noinline
func growStack() {
	var frame [stackBytes]byte
	use(&frame)
}

//go:noinline
func use(*[stackBytes]byte) {}

// withTimeoutAnswer answers a request that has no answer at its deadline.
func withTimeoutAnswer(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		next.ServeHTTP(w, req)
		if callOf(req.Context()).unanswered() && req.Context().Err() != nil {
			abandon(w)
		}
	})
}

// abandon responds as the apiserver does to a request whose time is over.
func abandon(w http.ResponseWriter) {
	w.WriteHeader(http.StatusGatewayTimeout)
	status := apierrors.NewTimeoutError("request did not complete within the allotted timeout", 0).ErrStatus
	_ = json.NewEncoder(w).Encode(&status)
}
