package intake

import (
	"errors"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	endpointfilters "k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/server/filters"
	"k8s.io/klog/v2"

	"github.com/eventd/eventd/internal/shares"
)

// forwardedPath serves the requests of forwarding sessions, whose bodies have arrived. Usual ones take a fast path:
// fastPath without what the replica of the client has done. All others are served by generic.
type forwardedPath struct {
	generic, chain http.Handler
	unread         *unreadResponses
	maxBody        int64
}

func newForwardedPath(routes http.Handler, o *ServerOptions, control *flowControl) *forwardedPath {
	handler := awaitLeader(routes, o.Forwarder)
	handler = control.withForwardedFlow(handler)
	handler = withRecovery(handler)
	handler = o.Intake.metrics.observe(handler)
	return &forwardedPath{
		generic: forwardedChain(routes, o, control), chain: handler,
		unread: newUnreadResponses(o.Intake), maxBody: maxUsualBodyOf(o.Intake),
	}
}

// forwardedHeaders are the headers of usual requests, and those that the other replica adds.
var forwardedHeaders = func() map[string]bool {
	headers := map[string]bool{AssertedUserHeader: true, "Audit-Id": true}
	for name := range usualHeaders {
		headers[name] = true
	}
	return headers
}()

// ServeHTTP implements http.Handler. The context of the request has a deadline.
func (f *forwardedPath) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	id := req.Header["Audit-Id"]
	deadline, ok := req.Context().Deadline()
	if !ok || len(id) != 1 || id[0] == "" || klog.V(3).Enabled() { // as in fastPath
		f.generic.ServeHTTP(w, req)
		return
	}
	u := usualRequest(req, f.maxBody, forwardedHeaders)
	if u == nil {
		f.generic.ServeHTTP(w, req)
		return
	}
	growStack()
	// Views have them for long. They are parts of the URL, and that of all that precedes the body in its frame.
	u.info.Namespace, u.info.Name = strings.Clone(u.info.Namespace), strings.Clone(u.info.Name)
	w.Header()["Audit-Id"] = id
	u.serve(w, req, soon(time.Until(deadline)), f.unread, f.chain)
}

// forwardedChain is chain without what the replica of the client has done: limits of headers,
// credentials, authentication and authorization.
func forwardedChain(handler http.Handler, o *ServerOptions, control *flowControl) http.Handler {
	handler = awaitLeader(handler, o.Forwarder)
	handler = control.withForwardedFlow(handler)
	handler = onlyReports(handler)
	handler = withWarnings(handler)
	handler = filters.WithHTTPLogging(handler)
	handler = withRecovery(handler)
	handler = o.Intake.metrics.observe(handler)
	handler = endpointfilters.WithRequestInfo(handler, newResolver())
	handler = newUnreadResponses(o.Intake).buffered(handler)
	handler = endpointfilters.WithRequestReceivedTimestamp(handler)
	return endpointfilters.WithAuditInit(handler)
}

// onlyReports refuses all requests that would not be recorded: only those are authorized.
func onlyReports(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if !recording(req) {
			notServed(w, req, http.StatusNotFound, "404: Page Not Found")
			return
		}
		next.ServeHTTP(w, req)
	})
}

// withForwardedFlow limits the requests in flight of a caller, as withInFlightLimit and
// withCallerFlow.
func (c *flowControl) withForwardedFlow(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		caller, ok := request.UserFrom(req.Context())
		if !ok {
			refuse(w, req, apierrors.NewInternalError(errors.New("no user in the context")))
			return
		}
		call, f := callOf(req.Context()), shares.FlowOf(caller.GetName(), namespaceOf(req))
		call.user = caller.GetName()
		call.authenticated.Store(true)
		r := &call.inFlight
		*r = newInFlight(c.inFlight, f, req)
		if !r.acquire() {
			c.refuse(w, req, refusedShare)
			return
		}
		defer r.release()
		c.enter(w, req, next)
	})
}
