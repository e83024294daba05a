package intake

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/eventd/eventd/pkg/occurrence"
)

// A request counts as in flight once: first in the flow of its address or its known
// credentials, and after authentication in that of its user.
func TestRequestCountsAsInFlightOnce(t *testing.T) {
	jane, joe := occurrence.TenantOf("jane"), occurrence.TenantOf("joe")
	asserted, err := EncodeUser(&user.DefaultInfo{Name: "jane"})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		known    string // tenant of the credentials, "" if they are unknown
		asserted string
		full     flow  // has its whole share, if not zero
		left     int64 // of that share
		first    *flow // of the request before authentication; nil for an unknown caller
		code     int
	}{
		"of an unknown caller":                  {code: 200},
		"of a known caller":                     {known: jane, first: &flow{Tenant: jane, Namespace: "ns"}, code: 200},
		"of one who was another":                {known: joe, first: &flow{Tenant: joe, Namespace: "ns"}, code: 200},
		"of a replica":                          {known: replicas, asserted: asserted, first: &flow{Tenant: jane, Namespace: "ns"}, code: 200},
		"of a replica that asserts nobody":      {known: replicas, asserted: "!", code: 200},
		"of an unknown caller, with too many":   {full: flow{Tenant: jane, Namespace: "ns"}, code: 429},
		"of a known caller who has too many":    {known: jane, full: flow{Tenant: jane, Namespace: "ns"}, code: 429},
		"of a known caller who has one left":    {known: jane, first: &flow{Tenant: jane, Namespace: "ns"}, full: flow{Tenant: jane, Namespace: "ns"}, left: 1, code: 200},
		"of one who was another, with too many": {known: joe, first: &flow{Tenant: joe, Namespace: "ns"}, full: flow{Tenant: jane, Namespace: "ns"}, code: 429},
	} {
		t.Run(name, func(t *testing.T) {
			c := testFlowControl(t)
			filled := int64(0)
			for test.full.Tenant != "" && c.inFlight.Acquire(test.full, 1) {
				filled++
			}
			if test.left > 0 {
				c.inFlight.Release(test.full, test.left)
				filled -= test.left
			}
			others := c.inFlight.UsedBy(flow{Tenant: jane, Namespace: "ns"})
			own := credential{1}
			if test.known != "" {
				c.callers.known.add(own, test.known, time.Now())
			}
			served := false
			call := &call{credential: own}
			ctx := withCall(request.WithRequestInfo(t.Context(), &request.RequestInfo{Namespace: "ns"}), call)
			req := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", nil)
			if test.asserted != "" {
				req.Header.Set(AssertedUserHeader, test.asserted)
			}
			w := httptest.NewRecorder()
			c.withInFlightLimit(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				unknown, known := int64(1), filled
				if test.first != nil {
					unknown, known = 0, filled+1
					if *test.first != test.full && c.inFlight.UsedBy(*test.first) != 1 {
						t.Errorf("it does not begin among those of %v", *test.first)
					}
				}
				if c.unknown.InUse() != unknown || c.inFlight.InUse() != known {
					t.Errorf("%d of unknown and %d others are in flight", c.unknown.InUse(), c.inFlight.InUse())
				}
				c.withCallerFlow(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
					served = true
					if of := call.flow(nil); of != (flow{Tenant: jane}) {
						t.Errorf("its answer is of %v", of)
					}
					if c.unknown.InUse() != 0 || c.inFlight.InUse() != filled+1 || c.inFlight.UsedBy(flow{Tenant: jane, Namespace: "ns"}) != others+1 {
						t.Errorf("%d of unknown and %d others are in flight while it is handled", c.unknown.InUse(), c.inFlight.InUse())
					}
				})).ServeHTTP(w, req.WithContext(request.WithUser(req.Context(), &user.DefaultInfo{Name: "jane"})))
			})).ServeHTTP(w, req)
			if w.Code != test.code || served != (test.code == 200) {
				t.Errorf("answered %d, handled %t: %s", w.Code, served, w.Body)
			}
			if c.unknown.InUse() != 0 || c.inFlight.InUse() != filled {
				t.Errorf("%d of unknown and %d others are in flight when it has been answered", c.unknown.InUse(), c.inFlight.InUse())
			}
			if got := testutil.ToFloat64(c.metrics.refused.WithLabelValues(refusedShare)); (got == 1) != (test.code == 429) {
				t.Errorf("%v were counted as refused", got)
			}
		})
	}
}

// Requests without credentials, and with recently rejected ones, are refused. The user
// that a replica asserts is decoded after authentication.
func TestWhichCredentialsAreReviewed(t *testing.T) {
	asserted, err := EncodeUser(&user.DefaultInfo{Name: "jane"})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		header   http.Header
		rejected bool
		reason   string // "" if it goes on
	}{
		"a token":                            {http.Header{"Authorization": {"Bearer a"}}, false, ""},
		"a token that was rejected":          {http.Header{"Authorization": {"Bearer a"}}, true, refusedRejected},
		"nothing":                            {http.Header{}, false, refusedNoCredentials},
		"a token for a WebSocket":            {http.Header{"Sec-Websocket-Protocol": {"base64url.bearer.authorization.k8s.io.dA"}}, false, refusedNoCredentials},
		"a token, and one for a WebSocket":   {http.Header{"Authorization": {"Bearer a"}, "Sec-Websocket-Protocol": {"base64url.bearer.authorization.k8s.io.dA"}}, false, ""},
		"a replica's":                        {http.Header{"Authorization": {"Bearer a"}, AssertedUserHeader: {asserted}}, false, ""},
		"a replica's that asserts nobody":    {http.Header{"Authorization": {"Bearer a"}, AssertedUserHeader: {"!"}}, false, ""},
		"a replica's that was rejected":      {http.Header{"Authorization": {"Bearer a"}, AssertedUserHeader: {asserted}}, true, refusedRejected},
		"a replica's without a token at all": {http.Header{AssertedUserHeader: {asserted}}, false, refusedNoCredentials},
	} {
		t.Run(name, func(t *testing.T) {
			c := testFlowControl(t)
			req := httptest.NewRequestWithContext(request.WithRequestInfo(t.Context(), &request.RequestInfo{}), http.MethodGet, "/", nil)
			req.Header = test.header
			own, _ := c.callers.hasher.of(req)
			if test.rejected {
				c.callers.rejected.add(own)
			}
			served := false
			w := httptest.NewRecorder()
			call := &call{}
			c.withCredentials(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
				served = true
				if call.credential != own || req.Header.Get("Sec-Websocket-Protocol") != "" {
					t.Errorf("the credentials that go on are others, or two: %v", req.Header)
				}
			})).ServeHTTP(w, req.WithContext(withCall(req.Context(), call)))
			if served != (test.reason == "") || !served && w.Code != http.StatusUnauthorized {
				t.Errorf("goes on %t, answered %d", served, w.Code)
			}
			for _, reason := range []string{refusedRejected, refusedNoCredentials} {
				if got := testutil.ToFloat64(c.metrics.refused.WithLabelValues(reason)); (got == 1) != (reason == test.reason) {
					t.Errorf("%v were counted as %s", got, reason)
				}
			}
			if c.callers.rejected.contains(own) != test.rejected {
				t.Error("the token is rejected from now on")
			}
		})
	}
}

// A filter that is missing in the chain is an internal error.
func TestRequestWithoutUserIsNotHandled(t *testing.T) {
	c := testFlowControl(t)
	ctx := request.WithRequestInfo(t.Context(), &request.RequestInfo{})
	for name, ctx := range map[string]context.Context{
		"not in flight": request.WithUser(ctx, &user.DefaultInfo{Name: "jane"}),
		"no user":       withCall(ctx, &call{inFlight: &inFlight{shares: c.unknown, flow: flow{}, size: 1}}),
	} {
		w := httptest.NewRecorder()
		c.withCallerFlow(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Errorf("%s: handled", name) })).
			ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodPost, "/", nil))
		if w.Code != http.StatusInternalServerError {
			t.Errorf("%s: answered %d", name, w.Code)
		}
	}
}

// A request waits for a seat until its time is up. There is a limit to how many do.
func TestRequestThatHasNoSeatIsNotHandled(t *testing.T) {
	for name, test := range map[string]struct {
		before int // requests that wait
		code   int
		waits  bool
		reason string
	}{
		"in time":              {0, http.StatusGatewayTimeout, true, ""},
		"behind too many more": {handSize, http.StatusTooManyRequests, false, refusedSeats},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := testFlowControl(t)
				c.seats = testSeats(t, 1, 1)
				own := flow{Tenant: "jane"}
				taken := &seat{seats: c.seats, flow: own}
				if !taken.acquire(t.Context()) {
					t.Fatal("no seat is free")
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				var waiting sync.WaitGroup
				for range test.before {
					waiting.Go(func() {
						s := &seat{seats: c.seats, flow: own}
						s.acquire(ctx)
					})
				}
				synctest.Wait()
				begun := time.Now()
				req := httptest.NewRequestWithContext(withCall(request.WithRequestInfo(ctx, &request.RequestInfo{}), &call{inFlight: &inFlight{shares: c.inFlight, flow: own, size: 1}}), http.MethodPost, "/", nil)
				w := httptest.NewRecorder()
				c.withSeat(func(http.ResponseWriter, *http.Request) { t.Error("handled") })(w, req)
				if w.Code != test.code || (time.Since(begun) > 0) != test.waits || time.Since(begun) >= time.Second {
					t.Errorf("answered %d after %s", w.Code, time.Since(begun))
				}
				if got := testutil.ToFloat64(c.metrics.refused.WithLabelValues(refusedSeats)); (got == 1) != (test.reason == refusedSeats) {
					t.Errorf("%v were counted as refused", got)
				}
				cancel()
				waiting.Wait()
				taken.end()
			})
		})
	}
}
