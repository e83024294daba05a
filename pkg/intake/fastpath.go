package intake

import (
	"encoding/json"
	"io"
	"net/http"
	"time"

	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	endpointfilters "k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"
)

// fastPath serves the reports that client-go sends without the generic filters and handlers of
// k8s.io/apiserver, which take most of the time of a report. It answers alike. Every other request
// takes the generic path, which is the reference: FuzzFastPath compares the two.
//
// A request is chosen by its method, its path and its headers before anything of it is parsed
// (usualRequest). Then it passes the same filters of this package as on the generic path. A body
// that is not usual is handled by the generic handler, behind these filters.
type fastPath struct {
	generic http.Handler
	chain   http.Handler
	unread  *unreadResponses
	maxBody int64
}

// newFastPath returns a handler that serves usual requests by routes. The caller sets generic, which serves all
// others.
func newFastPath(routes http.Handler, authn authenticator.Request, options ServerOptions, control *flowControl) *fastPath {
	handler := withUsualBody(routes)
	handler = withAuthorization(handler, options.Authorizer, control)
	handler = control.withCallerFlow(handler)
	handler = withAuthentication(handler, authn, control)
	if options.Forwarder != nil {
		handler = awaitLeader(handler, options.Forwarder)
	}
	handler = control.withInFlightLimit(handler)
	handler = withUsualDeadline(handler)
	handler = control.withCredentials(handler)
	handler = withRecovery(handler)
	handler = options.Intake.metrics.observe(handler)
	return &fastPath{chain: handler, unread: newUnreadResponses(options.Intake), maxBody: maxUsualBodyOf(options.Intake)}
}

// maxUsualBodyOf is the limit of a usual body in an intake.
func maxUsualBodyOf(i *Intake) int64 { return min(maxUsualBody, i.options.MaxBodyBytes) }

// ServeHTTP implements http.Handler.
func (f *fastPath) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	// The filters that log requests are not on the fast path.
	if klog.V(3).Enabled() {
		f.generic.ServeHTTP(w, req)
		return
	}
	u := usualRequest(req, f.maxBody, usualHeaders)
	if u == nil {
		f.generic.ServeHTTP(w, req)
		return
	}
	growStack()
	u.setHeaders(w, req)
	u.serve(w, req, soon(requestTimeout), f.unread, f.chain)
}

// serve serves a usual request until a time.
func (u *usual) serve(w http.ResponseWriter, req *http.Request, until time.Time, unread *unreadResponses, chain http.Handler) {
	ctx := req.Context()
	u.deadline.call = &u.call
	u.deadline.begin(request.WithRequestInfo(ctx, &u.info), ctx, until)
	defer u.deadline.end()
	unread.serve(w, req, &u.deadline, &u.call, chain)
}

// stackBytes is about what the stack of a report takes.
const stackBytes = 16 << 10

// growStack has the stack of a goroutine grow once, while there is little on it. A server handles each request in a
// new goroutine, whose stack would grow three times, and each time all that is on it would be copied and adjusted:
// a tenth of the time that a report takes.
//
//go:noinline
func growStack() {
	var frame [stackBytes]byte
	use(&frame)
}

//go:noinline
func use(*[stackBytes]byte) {}

// setHeaders sets the headers of WithAuditInit and WithCacheControl. The audit ID is also in the request, so that a
// leader to which it is forwarded, or the generic handler, has the same.
func (u *usual) setHeaders(w http.ResponseWriter, req *http.Request) {
	values := []string{uuid.New().String(), "no-cache, private"}
	id, cacheControl := values[0:1:1], values[1:2:2]
	if given := w.Header()["Audit-Id"]; len(given) == 0 {
		w.Header()["Audit-Id"] = id
	}
	req.Header["Audit-Id"] = id
	if _, ok := w.Header()["Cache-Control"]; !ok {
		w.Header()["Cache-Control"] = cacheControl
	}
}

// withGenericContext returns the generic handler of an API for a usual request whose body is not usual: it has
// what the filters that are left out add for the handler.
func withGenericContext(handler http.HandlerFunc) http.HandlerFunc {
	inner := withWarnings(handler)
	inner = endpointfilters.WithRequestReceivedTimestamp(inner)
	return endpointfilters.WithAuditInit(inner).ServeHTTP
}

// withUsualDeadline ends the deadline of a usual request, and answers one that has no answer by then. It is in place
// of the filter that abandons a handler: on the fast path, only a body that does not arrive ignores the deadline, and
// withUsualBody abandons that.
func withUsualDeadline(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		u := callOf(req.Context()).usual
		u.abandonAt = time.Now().Add(abandonAfter)
		defer u.deadline.end()
		next.ServeHTTP(w, req)
		if u.call.response.code == 0 && u.deadline.Err() != nil {
			abandon(w)
		}
	})
}

// withUsualBody reads the body of a usual request. The read ignores the context, so a read deadline in the past ends
// it at abandonAt. Then the request is answered as on the generic path. A further goroutine for the read would cost
// two wake-ups of a processor.
func withUsualBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		begun, u := time.Now(), callOf(req.Context()).usual
		u.abandoning.Add(1)
		late := time.AfterFunc(time.Until(u.abandonAt), func() {
			defer u.abandoning.Done()
			_ = http.NewResponseController(u.call.response.w).SetReadDeadline(time.Unix(1, 0)) // the past
		})
		body, err := readExactly(req.Body, req.ContentLength)
		abandoned := !late.Stop()
		if abandoned {
			u.abandoning.Wait() // the response writer must not be used after its request
		}
		switch {
		case abandoned, err != nil && u.deadline.ends.Err() != nil:
			abandon(w)
		case err != nil:
			refuse(w, req, err)
		default:
			u.received.set(body, time.Since(begun))
			req.Body = &u.received // the request is that of the chain alone
			next.ServeHTTP(w, req)
		}
	})
}

// readExactly reads a body of known length until its end: then the server needs no buffer for it any more.
func readExactly(body io.Reader, length int64) ([]byte, error) {
	buf, n := make([]byte, length+1), 0
	for n < len(buf) {
		read, err := body.Read(buf[n:])
		if n += read; err == io.EOF {
			return buf[:n], nil
		} else if err != nil {
			return nil, err
		}
	}
	return nil, errBodyLength
}

// errBodyLength is for a body that is longer than the server says. No server does.
var errBodyLength = apierrors.NewBadRequest("the body is longer than its Content-Length")

// abandon responds as WithTimeoutForNonLongRunningRequests does.
func abandon(w http.ResponseWriter) {
	w.WriteHeader(http.StatusGatewayTimeout)
	status := apierrors.NewTimeoutError("request did not complete within the allotted timeout", 0).ErrStatus
	_ = json.NewEncoder(w).Encode(&status)
}
