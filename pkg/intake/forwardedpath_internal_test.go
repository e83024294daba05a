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

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
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

// On both paths a forwarded request counts against the share of its caller, not of the replica.
func TestForwardedRequestIsInFlightForItsCaller(t *testing.T) {
	o := &ServerOptions{Intake: newIntake(), MaxInFlight: 10, Forwarder: &gate{}}
	c := must(newFlowControl(o))
	served := 0
	f := newForwardedPath(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		served++
		equal(t, "in flight", c.inFlight.UsedBy(flow{Tenant: "jane", Namespace: "shop"}), 1)
	}), o, c)
	ctx, cancel := context.WithTimeout(request.WithUser(t.Context(), &user.DefaultInfo{Name: "jane"}), time.Minute)
	defer cancel()
	for i, header := range []string{"User-Agent", "Traceparent"} { // the second one is not usual
		req := httptest.NewRequestWithContext(ctx, http.MethodPost, reportPath, strings.NewReader("{}"))
		req.Header = http.Header{AssertedUserHeader: {"jane"}, "Audit-Id": {"a"}, "Content-Type": {runtime.ContentTypeJSON}, header: {"kubelet"}}
		f.ServeHTTP(httptest.NewRecorder(), req)
		equal(t, fmt.Sprintf("served, with %s", header), served, i+1)
		equal(t, "in flight afterwards", c.inFlight.InUse(), 0)
	}
}
