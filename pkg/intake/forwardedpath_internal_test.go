package intake

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/eventd/eventd/pkg/occurrence"
)

// Only what another replica adds to a usual request is usual in a session.
func TestUsualRequestsOfASessionTakeItsFastPath(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for name, test := range map[string]struct {
		change func(*http.Request)
		fast   bool
	}{
		"as it is":            {func(*http.Request) {}, true},
		"without an audit ID": {func(req *http.Request) { req.Header.Del("Audit-Id") }, false},
		"with an empty one":   {func(req *http.Request) { req.Header.Set("Audit-Id", "") }, false},
		"with two":            {func(req *http.Request) { req.Header.Add("Audit-Id", "b") }, false},
		"another header":      {func(req *http.Request) { req.Header.Set("Traceparent", "a") }, false},
		"without a deadline":  {func(req *http.Request) { *req = *req.WithContext(t.Context()) }, false},
		"large":               {func(req *http.Request) { req.ContentLength = maxUsualBody + 1 }, false},
	} {
		t.Run(name, func(t *testing.T) {
			var path string
			var left time.Duration
			var of context.Context
			on := func(this string) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
					path, of = this, req.Context()
					if at, ok := req.Context().Deadline(); ok {
						left = time.Until(at)
					}
				})
			}
			f := &forwardedPath{generic: on("generic"), chain: on("fast"), unread: newUnreadResponses(newIntake()), maxBody: maxUsualBody}
			req := httptest.NewRequestWithContext(ctx, http.MethodPost, reportPath, strings.NewReader("{}"))
			req.Header = http.Header{AssertedUserHeader: {"jane"}, "Audit-Id": {"a"}, "Content-Type": {runtime.ContentTypeJSON}, "User-Agent": {"kubelet"}}
			test.change(req)
			f.ServeHTTP(httptest.NewRecorder(), req)
			equal(t, "on its fast path", path == "fast", test.fast)
			equal(t, "its context has ended", of.Err() != nil, test.fast)
			if test.fast && (left <= 50*time.Second || left > time.Minute-earlyBy(time.Minute)) {
				t.Errorf("%v are left of a minute", left)
			}
		})
	}
}

// Names are kept with views, for hours. What they are parts of would be kept with them: all headers of a request.
func TestForwardedRequestIsNotKeptWithItsNames(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for method, target := range map[string]string{http.MethodPost: reportPath, http.MethodPatch: reportPath + "/web-0.1"} {
		served := false
		chain := http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
			served = true
			info, _ := request.RequestInfoFrom(req.Context())
			for _, kept := range []string{info.Namespace, info.Name} {
				if i := strings.Index(target, kept); kept != "" && unsafe.StringData(kept) == unsafe.StringData(target[i:]) {
					t.Errorf("%s: %q is a part of the URL", method, kept)
				}
			}
		})
		f := &forwardedPath{chain: chain, unread: newUnreadResponses(newIntake()), maxBody: maxUsualBody}
		req := httptest.NewRequestWithContext(ctx, method, "/", strings.NewReader("{}"))
		req.URL.Path, req.RequestURI = target, target
		req.Header = http.Header{AssertedUserHeader: {"jane"}, "Audit-Id": {"a"}, "Content-Type": {runtime.ContentTypeJSON}}
		if method == http.MethodPatch {
			req.Header.Set("Content-Type", string(types.StrategicMergePatchType))
		}
		f.ServeHTTP(httptest.NewRecorder(), req)
		equal(t, method+": served", served, true)
	}
}

// forwarded returns a request of jane in a session. Any header but usual ones has it take the generic path.
func forwarded(ctx context.Context, method, path, header string) *http.Request {
	req := httptest.NewRequestWithContext(ctx, method, path, strings.NewReader("{}"))
	req.Header = http.Header{AssertedUserHeader: {"jane"}, "Audit-Id": {"a"}, "Content-Type": {runtime.ContentTypeJSON}, header: {"kubelet"}}
	return req
}

// as returns the context of a request that a user sends in a session.
func as(t *testing.T, name string) context.Context {
	ctx, cancel := context.WithTimeout(request.WithUser(t.Context(), &user.DefaultInfo{Name: name}), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// headersOfBothPaths have a forwarded request take the fast path, and the generic one.
var headersOfBothPaths = []string{"User-Agent", "Traceparent"}

// On both paths a forwarded request counts against the share of its caller, not of the replica.
func TestForwardedRequestIsInFlightForItsCaller(t *testing.T) {
	o := &ServerOptions{Intake: newIntake(), MaxInFlight: 10, Forwarder: &gate{}}
	c := must(newFlowControl(o))
	served := 0
	f := newForwardedPath(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		served++
		equal(t, "in flight", c.inFlight.UsedBy(flow{Tenant: "jane", Namespace: "shop"}), 1)
	}), o, c)
	for i, header := range headersOfBothPaths {
		f.ServeHTTP(httptest.NewRecorder(), forwarded(as(t, "jane"), http.MethodPost, reportPath, header))
		equal(t, fmt.Sprintf("served, with %s", header), served, i+1)
		equal(t, "in flight afterwards", c.inFlight.InUse(), 0)
	}
}

// All ServiceAccounts of a namespace have one share.
func TestForwardedRequestOfAServiceAccountIsInFlightForItsTenant(t *testing.T) {
	o := &ServerOptions{Intake: newIntake(), MaxInFlight: 10, Forwarder: &gate{}}
	c := must(newFlowControl(o))
	served := false
	f := newForwardedPath(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		served = true
		equal(t, "in flight", c.inFlight.UsedBy(flow{Tenant: "system:serviceaccount:team", Namespace: "shop"}), 1)
	}), o, c)
	f.ServeHTTP(httptest.NewRecorder(), forwarded(as(t, "system:serviceaccount:team:robot"), http.MethodPost, reportPath, "User-Agent"))
	equal(t, "served", served, true)
}

// What is above the share of a caller is refused, and goes no further.
func TestForwardedRequestAboveTheShareIsRefused(t *testing.T) {
	o := &ServerOptions{Intake: newIntake(), MaxInFlight: 1, Forwarder: &gate{}}
	served := 0
	var f *forwardedPath
	f = newForwardedPath(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		served++
		for _, header := range headersOfBothPaths {
			if w := httptest.NewRecorder(); served == 1 {
				f.ServeHTTP(w, forwarded(as(t, "jane"), http.MethodPost, reportPath, header))
				equal(t, "code with "+header, w.Code, http.StatusTooManyRequests)
			}
		}
	}), o, must(newFlowControl(o)))
	f.ServeHTTP(httptest.NewRecorder(), forwarded(as(t, "jane"), http.MethodPost, reportPath, "User-Agent"))
	equal(t, "served", served, 1)
}

// Another replica has authorized reports, and nothing else.
func TestOnlyReportsAreServedInASession(t *testing.T) {
	o := &ServerOptions{Intake: newIntake(), MaxInFlight: 10, Forwarder: &gate{}}
	f := newForwardedPath(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		t.Errorf("%s %s is served", req.Method, req.URL.Path)
	}), o, must(newFlowControl(o)))
	for path, method := range map[string]string{
		reportPath: http.MethodGet, reportPath + "/a": http.MethodDelete, "/api/v1/namespaces/shop/pods": http.MethodPost, "/metrics": http.MethodGet,
	} {
		w := httptest.NewRecorder()
		f.ServeHTTP(w, forwarded(as(t, "jane"), method, path, "User-Agent"))
		equal(t, method+" "+path, w.Code, http.StatusNotFound)
	}
}

// On both paths a bug costs one request, which is answered and counted.
func TestForwardedRequestThatPanicsIsAnswered(t *testing.T) {
	o := &ServerOptions{Intake: newIntake(), MaxInFlight: 10, Forwarder: &gate{}}
	c := must(newFlowControl(o))
	f := newForwardedPath(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("a bug") }), o, c)
	for i, header := range headersOfBothPaths {
		w := httptest.NewRecorder()
		f.ServeHTTP(w, forwarded(as(t, "jane"), http.MethodPost, reportPath, header))
		equal(t, "code with "+header, w.Code, http.StatusInternalServerError)
		equal(t, "in flight afterwards", c.inFlight.InUse(), 0)
		equal(t, "counted", testutil.ToFloat64(o.Intake.metrics.requests.WithLabelValues("core/v1", "create", "500")), float64(i+1))
	}
}

// A body above the limit of the server is not usual.
func TestLimitOfBodiesAppliesToTheFastPathOfASession(t *testing.T) {
	o := DefaultOptions()
	o.Record, o.MaxBodyBytes = func(*occurrence.Occurrence) {}, 1000
	server := &ServerOptions{Intake: must(New(o)), MaxInFlight: 10, Forwarder: &gate{}}
	f := newForwardedPath(http.NotFoundHandler(), server, must(newFlowControl(server)))
	equal(t, "limit", f.maxBody, 1000)
}
