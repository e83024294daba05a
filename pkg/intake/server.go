package intake

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
	// DefaultMaxInFlight is how many requests are in flight at once, those that wait
	// included. With bodies of 1 MiB they hold 1 GiB; with usual ones, some 4 MiB.
	DefaultMaxInFlight = 1000
	// requestTimeout is the longest that a request may ask to be worked on. The
	// apiserver's handlers stop waiting for a write after 34 s.
	requestTimeout = 60 * time.Second
	// abandonAfter is when a request is answered without its handler, which
	// waits for something that no deadline ends: a body that does not come. It
	// is later than the handler's own deadline, or both would answer at once.
	abandonAfter = requestTimeout + 5*time.Second
)

// ServerOptions are what stands around an Intake in a server.
type ServerOptions struct {
	// Intake is required.
	Intake *Intake
	// Authenticator and Authorizer decide about all but the health endpoints,
	// metrics and discovery included. Both are required. An error of either
	// that leaves the decision open is answered 503.
	Authenticator authenticator.Request
	Authorizer    authorizer.Authorizer
	// Relay, if not nil, has only the leader record what it is asked to. Without
	// one this process records everything.
	Relay *Relay
	// Issuer, if not nil, verifies ServiceAccount tokens that this process has not seen
	// accepted yet: until their TokenReview, requests with one wait in the shares of its
	// tenant, and not in those of their address. Who made it runs it.
	Issuer *Issuer
	// MaxInFlight is how many requests of known callers are in flight at once; more
	// are answered 429, and so is a caller above its share of them. 0 is
	// DefaultMaxInFlight.
	MaxInFlight int
	// ReviewTTL and AccessReviewTTL are how long Authenticator and Authorizer keep
	// what they were told of a token, or of a right. 0 is 10 s; below 0 they do not.
	ReviewTTL, AccessReviewTTL time.Duration
	// Livez is checked by /livez and /healthz, Readyz by /readyz. They answer
	// whoever asks, also while the apiserver is away.
	Livez, Readyz []healthz.HealthChecker
	// Role, if not nil, is what the process is among its replicas. Probes that ask
	// for everything are told it in a line of its own.
	Role func() string
	// Metrics, if not nil, answers /metrics.
	Metrics http.Handler
}

func (o *ServerOptions) validate() error {
	var errs []error
	if o.Intake == nil {
		errs = append(errs, errors.New("Intake is required"))
	}
	if o.Authenticator == nil {
		errs = append(errs, errors.New("Authenticator is required"))
	}
	if o.Authorizer == nil {
		errs = append(errs, errors.New("Authorizer is required"))
	}
	if o.MaxInFlight < 0 {
		errs = append(errs, fmt.Errorf("MaxInFlight must not be negative, but is %d", o.MaxInFlight))
	}
	return errors.Join(errs...)
}

// NewHandler returns the handler of a server: the apiserver's filters around
// the Events API, discovery, health and metrics. It limits what the copy operations
// of a JSON patch may add up to, in the whole process: to the MaxBodyBytes of its
// intake, or 3 MiB, unless a lower limit is set.
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
	refused := options.Intake.metrics.refused.WithLabelValues(refusedReviews)
	if options.Authorizer, err = newSharedAuthorizer(options.Authorizer, options.MaxInFlight, options.AccessReviewTTL, refused); err != nil {
		return nil, fmt.Errorf("intake: %w", err)
	}
	options.Intake.metrics.inFlightCapacity.Set(float64(options.MaxInFlight))
	if options.Relay != nil {
		options.Relay.forRequests(options.MaxInFlight)
	}
	routes := &router{apis: make(map[occurrence.API]api), paths: newDiscovery()}
	for _, a := range []occurrence.API{occurrence.CoreV1, occurrence.EventsV1} {
		handlers, err := newAPI(options.Intake, a, options.Authorizer)
		if err != nil {
			return nil, fmt.Errorf("intake: %w", err)
		}
		handlers = handlers.each(control.seated)
		if options.Relay != nil {
			handlers = handlers.each(options.Relay.around)
		}
		routes.apis[a] = handlers.each(options.Intake.decoding.checked(options.Intake.options.MaxBodyBytes)).each(options.Intake.received)
	}
	if options.Metrics != nil {
		routes.paths["/metrics"] = control.seated(options.Metrics.ServeHTTP)
	}
	return chain(routes, options, control), nil
}

// chain puts the filters around a handler; the last one added is the first to
// see a request.
func chain(handler http.Handler, options ServerOptions, control *flowControl) http.Handler {
	nothing := func(*http.Request, *request.RequestInfo) bool { return false } // is long-running

	handler = withAuthorization(handler, options.Authorizer)
	handler = withoutImpersonation(handler)
	handler = control.withFlow(handler)
	authn := notAnonymous(options.Authenticator)
	if options.Relay != nil {
		authn = options.Relay.peers.or(authn)
	}
	handler = withAuthentication(handler, control.callers.around(authn), control)
	if options.Relay != nil {
		handler = options.Relay.awaitLeader(handler)
	}
	// Before authentication, so that it bounds who waits for that, and within the
	// time-out, so that what still runs after one counts as in flight.
	handler = control.withPlace(handler)
	handler = endpointfilters.WithRequestDeadline(handler, nil, nil, nothing, codecs, requestTimeout)
	handler = withValidTimeout(handler)
	handler = endpointfilters.WithWarningRecorder(handler)
	handler = filters.WithTimeoutForNonLongRunningRequests(handler, nothing)
	handler = withDeadline(handler, abandonAfter)
	handler = control.withCredentials(handler)
	handler = withHealth(handler, options)
	handler = endpointfilters.WithCacheControl(handler)
	handler = filters.WithHTTPLogging(handler)
	handler = withRecovery(handler)
	handler = options.Intake.metrics.observe(handler)
	handler = endpointfilters.WithRequestInfo(handler, newResolver())
	// Before anything looks at the URL.
	handler = withHeaderLimit(handler, options.Intake.metrics)
	// Around all that answers: what a request holds is given back before anybody
	// waits for its client to read.
	handler = newUnwritten(options.Intake).around(handler)
	handler = endpointfilters.WithRequestReceivedTimestamp(handler)
	handler = endpointfilters.WithAuditInit(handler)
	return handler
}

func withDeadline(next http.Handler, timeout time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		ctx, cancel := context.WithTimeout(req.Context(), timeout)
		defer cancel()
		next.ServeHTTP(w, req.WithContext(ctx))
	})
}
