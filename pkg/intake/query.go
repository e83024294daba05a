package intake

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/eventd/eventd/internal/fairqueue"
	"github.com/eventd/eventd/internal/instrument"
	"github.com/eventd/eventd/internal/shares"
)

// Limits of queries, and of requests for paths such as /metrics. None of them is shared with requests that report
// Events.
const (
	// maxQueries limits the queries in flight, those that wait included, and querySeats those that are
	// answered at once.
	maxQueries, querySeats = 64, 4
	// maxWatches limits the open watches.
	maxWatches = 64
	// maxUnreadQueryBytes is the maximum memory of all answers to queries that are being written.
	maxUnreadQueryBytes = 8 << 20
)

// queryReviews is the limit of reviews: each user with open watches makes one or two every 10 s for each of their
// namespaces.
var queryReviews = reviewLimit{50, 200}

// Queries serves an API of GETs beside that of Events. It must be safe for concurrent use.
type Queries interface {
	// GroupVersion and Resources are for requests and discovery. They do not change.
	GroupVersion() schema.GroupVersion
	Resources() []metav1.APIResource
	// Query checks a request and the rights of its caller, and returns what answers it. The answer to a watch
	// is called with a request that has no timeout, and a writer that is not buffered. An error is answered
	// as a Status.
	Query(Query) (answer http.HandlerFunc, watch bool, err error)
}

// Query is a GET of one of the resources of Queries. Its caller is in its context.
type Query struct {
	*http.Request
	Resource string
	// Relayed is true if another replica has sent it.
	Relayed bool
	// Caller is the name of the user that asks.
	Caller    string
	Authorize Authorize
	// Answering reports whether the apiserver has answered a review of a query in the last 10 s.
	Answering func() bool
	// Wait calls a function without the seat of the query, since that waits for others. The context of the
	// request may have ended when it returns.
	Wait func(ctx context.Context, wait func())
}

// Authorize returns nil if a caller has a verb on Events in a namespace, or, if that is empty, in all of
// them. Otherwise it returns the Status of the answer, and whether the caller was denied: also if that has
// yet to be confirmed by another review. It is not, if there was no review.
type Authorize func(ctx context.Context, verb, namespace string) (denied bool, err error)

// queries serves Queries behind the same filters as the Events API, but authorizes by the rights on Events,
// and has limits of its own. A watch runs in place of a response, as a session does.
type queries struct {
	api       Queries
	resources map[string]bool
	authz     *sharedAuthorizer
	authn     authenticator.Request
	seats     *fairqueue.Seats
	watches   *shares.Shares
	unread    *shares.Shares
	control   *flowControl
	requests  *prometheus.CounterVec
}

// newQueries registers the metrics of queries.
func newQueries(o *ServerOptions, control *flowControl) (*queries, error) {
	set := instrument.New(o.Intake.options.Registerer)
	q := &queries{
		api: o.Queries, resources: make(map[string]bool),
		watches: shares.New(maxWatches), unread: shares.New(maxUnreadQueryBytes), control: control,
		requests: set.CounterVec("eventd_query_requests_total",
			"Queries by resource and HTTP status code. A watch counts when it begins.", "resource", "code"),
	}
	for _, r := range o.Queries.Resources() {
		q.resources[r.Name] = true
		q.requests.WithLabelValues(r.Name, strconv.Itoa(http.StatusOK))
	}
	var err error
	q.authz, err = newSharedAuthorizer(cmp.Or(o.QueryAuthorizer, o.Authorizer), queryReviews, maxQueries+maxWatches, o.AccessReviewTTL,
		o.Intake.metrics.refused.WithLabelValues(refusedReviews))
	if err != nil {
		return nil, err
	}
	if q.seats, err = fairqueue.New("queries", querySeats, maxQueries, nil); err != nil {
		return nil, err
	}
	set.GaugeFunc("eventd_query_watches", "Open watches of queries.", func() float64 { return float64(q.watches.InUse()) })
	set.GaugeFunc("eventd_query_watches_capacity", "Maximum number of open watches. Above it, or above its share, a caller gets 429.",
		func() float64 { return maxWatches })
	return q, set.Err()
}

// resource returns the resource that a request queries, "" if it is no query. q may be nil.
func (q *queries) resource(req *http.Request) string {
	info, ok := request.RequestInfoFrom(req.Context())
	if q == nil || !ok || !info.IsResourceRequest || req.Method != http.MethodGet || len(info.Parts) != 1 ||
		info.Namespace != "" || (schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}) != q.api.GroupVersion() ||
		!q.resources[info.Resource] {
		return ""
	}
	return info.Resource
}

// covers reports whether a request is served within the limits of queries: it is a query, or for a path such as
// /metrics. So both are answered while reports wait. q may be nil.
func (q *queries) covers(req *http.Request) bool {
	if q == nil || req.Method != http.MethodGet { // replicas post to paths
		return false
	}
	info, ok := request.RequestInfoFrom(req.Context())
	return ok && !info.IsResourceRequest || q.resource(req) != ""
}

// ServeHTTP answers a query.
func (q *queries) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	resource := q.resource(req)
	if code := q.serve(w, req, resource); code != 0 {
		q.count(resource, code)
	}
}

func (q *queries) count(resource string, code int) {
	q.requests.WithLabelValues(resource, strconv.Itoa(code)).Inc()
}

// serve answers a query with a seat, and returns the status code. It is 0 for a watch, which counts when it
// begins.
func (q *queries) serve(w http.ResponseWriter, req *http.Request, resource string) int {
	ctx, cancel := early(req.Context())
	defer cancel()
	call := callOf(ctx)
	call.query.Store(true)
	refused := func(err error) int {
		refuse(w, req, err)
		return call.response.code
	}
	caller, ok := request.UserFrom(ctx)
	if !ok {
		return refused(apierrors.NewInternalError(errors.New("no user in the context")))
	}
	s := &seat{seats: q.seats, flow: call.inFlight.flow}
	if !q.control.awaitSeat(w, req, s) {
		return call.response.code
	}
	defer s.end()
	call.seat = s
	own := shares.FlowOf(caller.GetName(), "")
	answer, watch, err := q.api.Query(Query{
		Request: req.WithContext(ctx), Resource: resource, Relayed: Forwarded(req),
		Caller: caller.GetName(), Authorize: q.authorize(caller), Answering: q.authz.answering, Wait: withoutSeat,
	})
	err = q.control.decided(req, err)
	switch {
	case err != nil:
		return refused(err)
	case watch:
		session := q.watch(resource, own, q.whileAuthentic(call, answer))
		call.session.Store(&session)
		return 0
	default:
		answer(w, req.WithContext(ctx))
		return call.response.code
	}
}

// authorize returns the Authorize of a caller. The shared authorizer waits without a seat.
func (q *queries) authorize(caller user.Info) func(context.Context, string, string) (bool, error) {
	return func(ctx context.Context, verb, namespace string) (denied bool, err error) {
		attributes := authorizer.AttributesRecord{
			User: caller, ResourceRequest: true, Verb: verb, APIVersion: "v1", Resource: resourceName, Namespace: namespace,
		}
		decision, reason, err := q.authz.Authorize(ctx, attributes)
		denied = errors.Is(err, errDoubtful) || err == nil && decision != authorizer.DecisionAllow || decision == authorizer.DecisionDeny
		return denied, statusOfDecision(ctx, attributes, decision, reason, err)
	}
}
