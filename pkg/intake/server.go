package intake

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	endpointfilters "k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/server/filters"
	"k8s.io/apiserver/pkg/server/healthz"

	"github.com/eventd/eventd/pkg/occurrence"
)

const (
	// DefaultMaxInFlight is the default limit of requests in flight. With bodies of
	// 1 MiB they use 1 GiB, with usual ones about 40 MiB.
	DefaultMaxInFlight = 1000
	// requestTimeout is the maximum timeout of a request. The apiserver's handlers wait
	// up to 34 s for a write.
	requestTimeout = 60 * time.Second
	// reviewTTL is for how long kube components cache a review by default.
	reviewTTL = 10 * time.Second
	// abandonAfter is the timeout of a handler that ignores its deadline, because it
	// reads a body that does not arrive. It is later than that deadline, or both would
	// respond at once.
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
	Authorizer    authorizer.Authorizer
	// QueryAuthorizer, if not nil, decides about queries in place of Authorizer. With a client of its own,
	// reviews of queries and of reports do not wait for each other.
	QueryAuthorizer authorizer.Authorizer
	// Forwarder, if not nil, has only the leader of several replicas record. Without
	// one this process records everything.
	Forwarder Forwarder
	// Replication, if not nil, serves a session with another replica, which follows this
	// one: a POST of ReplicationPath. It must return soon after ctx has ended or the session
	// is closed. There are at most 8 sessions at once. It needs a Forwarder.
	Replication func(ctx context.Context, session io.ReadWriteCloser) error
	// ReplicaState, if not nil, accepts what another replica reports of itself: a POST of ReplicaStatePath.
	// It must not block. Its error is answered 400. It needs a Forwarder.
	ReplicaState func(replica string, state []byte) error
	// Issuer, if not nil, verifies ServiceAccount tokens that this process has not seen
	// accepted yet. Until their TokenReview, their requests count against the share of
	// their tenant, and not that of their address. The caller runs it.
	Issuer *Issuer
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
}

func (o *ServerOptions) validate() error {
	var errs []error
	for _, required := range []struct {
		field   string
		missing bool
	}{
		{"Intake", o.Intake == nil},
		{"Authenticator", o.Authenticator == nil},
		{"Authorizer", o.Authorizer == nil},
		{"Forwarder, with Replication,", o.Replication != nil && o.Forwarder == nil},
		{"Forwarder, with ReplicaState,", o.ReplicaState != nil && o.Forwarder == nil},
	} {
		if required.missing {
			errs = append(errs, fmt.Errorf("%s is required", required.field))
		}
	}
	if !(o.AccessReviewQPS >= 0) {
		errs = append(errs, fmt.Errorf("AccessReviewQPS must not be negative, but is %v", o.AccessReviewQPS))
	}
	if o.MaxInFlight < 0 {
		errs = append(errs, fmt.Errorf("MaxInFlight must not be negative, but is %d", o.MaxInFlight))
	}
	return errors.Join(errs...)
}

// NewHandler returns the handler of a server: the apiserver's filters around the Events
// API, discovery, health and metrics. It also limits the size of all copy operations of
// one JSON patch, in the whole process: to the MaxBodyBytes of its intake, at most 3
// MiB, unless a lower limit is set. The response writers must support SetReadDeadline, as
// those of net/http do, or reports of client-go whose bodies do not arrive never end.
func NewHandler(options ServerOptions) (http.Handler, error) {
	if err := options.validate(); err != nil {
		return nil, fmt.Errorf("intake: %w", err)
	}
	limitCopies(options.Intake.options.MaxBodyBytes)
	if options.MaxInFlight == 0 {
		options.MaxInFlight = DefaultMaxInFlight
	}
	options.ReviewTTL = cmp.Or(options.ReviewTTL, reviewTTL)
	options.AccessReviewTTL = cmp.Or(options.AccessReviewTTL, reviewTTL)
	control, err := newFlowControl(&options)
	if err != nil {
		return nil, fmt.Errorf("intake: %w", err)
	}
	if options.Queries != nil {
		if control.queries, err = newQueries(&options, control); err != nil {
			return nil, fmt.Errorf("intake: %w", err)
		}
	}
	refused := options.Intake.metrics.refused.WithLabelValues(refusedReviews)
	limit := accessReviews(cmp.Or(options.AccessReviewQPS, DefaultAccessReviewQPS))
	if options.Authorizer, err = newSharedAuthorizer(options.Authorizer, limit, options.MaxInFlight, options.AccessReviewTTL, refused); err != nil {
		return nil, fmt.Errorf("intake: %w", err)
	}
	options.Intake.metrics.inFlightCapacity.Set(float64(options.MaxInFlight))
	routes := &router{apis: make(map[occurrence.API]api), paths: newDiscovery(options.Queries)}
	for _, a := range []occurrence.API{occurrence.CoreV1, occurrence.EventsV1} {
		handlers, err := newAPI(options.Intake, a, options.Authorizer)
		if err != nil {
			return nil, fmt.Errorf("intake: %w", err)
		}
		handlers = handlers.each(control.withSeat)
		if options.Forwarder != nil {
			handlers = handlers.each(handleOrForward)
		} else {
			handlers = handlers.each(withoutTerm)
		}
		routes.apis[a] = handlers.each(options.Intake.decoding.withBodyCheck(options.Intake.options.MaxBodyBytes)).each(options.Intake.withBody)
		routes.apis[a][batchVerb] = newBatches(&options, a, control)
	}
	if options.Metrics != nil {
		control.paths["/metrics"] = true
		routes.paths["/metrics"] = control.withSeat(options.Metrics.ServeHTTP)
	}
	for path, handler := range options.Paths {
		control.paths[path] = true
		routes.paths[path] = control.withSeat(handler.ServeHTTP)
	}
	return chain(routes, options, control), nil
}

// chain adds the filters to a handler. A request passes the last one first.
func chain(handler http.Handler, options ServerOptions, control *flowControl) http.Handler {
	longRunning := func(*http.Request, *request.RequestInfo) bool { return false }

	routes := handler
	handler = control.queries.or(handler, options.Authorizer, control)
	handler = withoutImpersonation(handler)
	handler = control.withCallerFlow(handler)
	if options.Replication != nil {
		handler = newSessions(&options).begin(handler)
	}
	if options.ReplicaState != nil {
		handler = withReplicaStates(handler, options.ReplicaState)
	}
	authn := notAnonymous(options.Authenticator)
	if options.Forwarder != nil {
		authn = orPeer(options.Forwarder, authn)
	}
	authn = control.callers.limit(authn)
	fast := newFastPath(routes, authn, options, control)
	if control.queries != nil {
		control.queries.authn = authn
	}
	handler = withAuthentication(handler, authn, control)
	if options.Forwarder != nil {
		handler = awaitLeader(handler, options.Forwarder)
	}
	// Before authentication, so that requests that wait for it count. Inside the timeout
	// filter, so that handlers that run on after the timeout count.
	handler = control.withInFlightLimit(handler)
	handler = endpointfilters.WithRequestDeadline(handler, nil, nil, longRunning, codecs, requestTimeout)
	handler = withValidTimeout(handler)
	handler = withWarnings(handler)
	handler = filters.WithTimeoutForNonLongRunningRequests(handler, longRunning)
	handler = withDeadline(handler, abandonAfter)
	handler = control.withCredentials(handler)
	handler = withHealth(handler, options)
	handler = endpointfilters.WithCacheControl(handler)
	handler = filters.WithHTTPLogging(handler)
	handler = withRecovery(handler)
	handler = options.Intake.metrics.observe(handler)
	handler = endpointfilters.WithRequestInfo(handler, newResolver())
	// Before any filter reads the URL.
	handler = withHeaderLimit(handler, options.Intake.metrics)
	// Around all filters that respond, so that a request has released everything before
	// the server waits for its client to read.
	unread := newUnreadResponses(options.Intake)
	if control.queries != nil {
		unread.queries = control.queries.unread
	}
	handler = unread.buffered(handler)
	handler = endpointfilters.WithRequestReceivedTimestamp(handler)
	fast.generic = endpointfilters.WithAuditInit(handler)
	return fast
}

func withDeadline(next http.Handler, timeout time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		ctx, cancel := context.WithTimeout(req.Context(), timeout)
		defer cancel()
		next.ServeHTTP(w, req.WithContext(ctx))
	})
}
