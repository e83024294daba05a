package intake

import (
	"context"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/eventd/eventd/internal/fairqueue"
	"github.com/eventd/eventd/internal/shares"
	"github.com/eventd/eventd/pkg/occurrence"
)

// assertion is that of a user by another replica.
func assertion(name string) string { return must(EncodeUser(&user.DefaultInfo{Name: name})) }

// refusedAs is how many requests were refused for a reason.
func (c *flowControl) refusedAs(reason string) float64 {
	return testutil.ToFloat64(c.metrics.refused.WithLabelValues(reason))
}

// A request counts as in flight once: first in the flow of its address or its known
// credentials, and after authentication in that of its user.
func TestRequestCountsAsInFlightOnce(t *testing.T) {
	jane, joe := occurrence.TenantOf("jane"), occurrence.TenantOf("joe")
	of := func(tenant string) flow { return flow{Tenant: tenant, Namespace: "ns"} }
	for name, test := range map[string]struct {
		known    string // tenant of the credentials, "" if they are unknown
		asserted string
		full     string // tenant that has its whole share, "" for none
		left     int64  // of that share
		first    string // tenant before authentication, "" for an unknown caller
		code     int
	}{
		"of an unknown caller":                  {code: 200},
		"of a known caller":                     {known: jane, first: jane, code: 200},
		"of one who was another":                {known: joe, first: joe, code: 200},
		"of a replica":                          {known: replicas, asserted: assertion("jane"), first: jane, code: 200},
		"of a replica that asserts nobody":      {known: replicas, asserted: "!", code: 200},
		"of an unknown caller, with too many":   {full: jane, code: 429},
		"of a known caller who has too many":    {known: jane, full: jane, code: 429},
		"of a known caller who has one left":    {known: jane, first: jane, full: jane, left: 1, code: 200},
		"of one who was another, with too many": {known: joe, first: joe, full: jane, code: 429},
	} {
		t.Run(name, func(t *testing.T) {
			c := testFlowControl()
			filled := -test.left
			for test.full != "" && c.inFlight.Acquire(of(test.full), 1) {
				filled++
			}
			if test.left > 0 {
				c.inFlight.Release(of(test.full), test.left)
			}
			others := c.inFlight.UsedBy(of(jane))
			inUse := func(when string, unknown, known int64) {
				t.Helper()
				equal(t, "of unknown callers "+when, c.unknown.InUse(), unknown)
				equal(t, "of known callers "+when, c.inFlight.InUse(), known)
			}
			call := &call{credential: credential{1}}
			if test.known != "" {
				c.callers.known.add(call.credential, acceptedNow(test.known))
			}
			req := requestWith("", "")
			req = req.WithContext(withCall(req.Context(), call))
			if test.asserted != "" {
				req.Header.Set(AssertedUserHeader, test.asserted)
			}
			handled := false
			authenticated := c.withCallerFlow(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				handled = true
				inUse("while it is handled", 0, filled+1)
				equal(t, "of its user", c.inFlight.UsedBy(of(jane)), others+1)
			}))
			w := httptest.NewRecorder()
			c.withInFlightLimit(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				if test.first == "" {
					inUse("before authentication", 1, filled)
				} else {
					inUse("before authentication", 0, filled+1)
				}
				if test.first != "" && test.first != test.full {
					equal(t, "of "+test.first, c.inFlight.UsedBy(of(test.first)), 1)
				}
				user := request.WithUser(req.Context(), &user.DefaultInfo{Name: "jane"})
				authenticated.ServeHTTP(w, req.WithContext(user))
				equal(t, "flow of the response, or of the refusal", call.flow(req), flow{Tenant: jane})
			})).ServeHTTP(w, req)
			equal(t, "code", w.Code, test.code)
			equal(t, "handled", handled, test.code == 200)
			inUse("after the response", 0, filled)
			equal(t, "counted as refused", c.refusedAs(refusedShare) == 1, test.code == 429)
		})
	}
}

// Callers without rights share a flow in their tenant, and those who have one keep their own. A right is one that not
// everybody has, and counts until nothing was granted for long.
func TestCallersWithoutRightsShareAFlow(t *testing.T) {
	const name, version, metrics = "system:serviceaccount:a:x", "/version", "/metrics"
	tenant := occurrence.TenantOf(name)
	type step struct {
		path   string // "" is that of Events
		err    error  // of the authorization
		later  time.Duration
		before string // user of the flow before the authorization
		after  string // after it, and of the response
	}
	forbidden, undecided := apierrors.NewForbidden(schema.GroupResource{}, "", nil), unavailable("")
	none, unknown := shares.Rightless, shares.Unproven
	for of, steps := range map[string][]step{
		"no rights":         {{err: forbidden, before: unknown, after: none}, {err: forbidden, before: none, after: none}},
		"the right":         {{before: unknown, after: name}, {before: name, after: name}},
		"a right, not this": {{before: unknown, after: name}, {err: forbidden, before: name, after: none}, {before: name, after: name}},
		"a right at last":   {{err: forbidden, before: unknown, after: none}, {before: none, after: name}, {before: name, after: name}},
		"a right no more": {{before: unknown, after: name}, {err: forbidden, before: name, after: none},
			{err: forbidden, later: grantedFor, before: none, after: none}},
		"that of everybody":          {{path: version, before: none, after: none}, {before: unknown, after: name}, {path: version, before: name, after: name}},
		"a path that needs a right":  {{path: metrics, before: unknown, after: name}, {path: version, before: name, after: name}},
		"nothing that was decided":   {{err: undecided, before: unknown, after: unknown}, {err: undecided, before: unknown, after: unknown}},
		"no rights, and not decided": {{err: forbidden, before: unknown, after: none}, {err: undecided, before: none, after: none}},
	} {
		bubble(t, of, func(t *testing.T) {
			c := testFlowControl()
			c.paths[metrics] = true
			c.callers.known.add(credential{1}, acceptedNow(name))
			for i, step := range steps {
				time.Sleep(step.later)
				c.callers.known.add(credential{1}, acceptedNow(name)) // it is reviewed again
				call, req := &call{credential: credential{1}}, requestWith("", "")
				if step.path != "" {
					req = req.WithContext(request.WithRequestInfo(req.Context(), &request.RequestInfo{Path: step.path}))
				}
				inFlight := func(when, user string) {
					t.Helper()
					equal(t, fmt.Sprintf("step %d: of %q in flight %s", i, user, when), c.inFlight.UsedBy(flow{Tenant: tenant, User: user}), 1)
				}
				req = req.WithContext(request.WithUser(withCall(req.Context(), call), &user.DefaultInfo{Name: name}))
				c.withInFlightLimit(c.withCallerFlow(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
					inFlight("before", step.before)
					equal(t, "error", c.decided(req, step.err), step.err)
					if step.err == nil {
						inFlight("after", step.after)
					}
				}))).ServeHTTP(httptest.NewRecorder(), req)
				equal(t, fmt.Sprintf("step %d: flow of the response", i), call.flow(req), flow{Tenant: tenant, User: step.after})
				equal(t, "in flight at the end", c.inFlight.InUse(), 0)
			}
		})
	}
}

// A caller that turns out to have a right counts as itself, and is refused if it has all that it may have.
func TestCallerWithARightTakesNoMoreThanItsOwn(t *testing.T) {
	const name = "system:serviceaccount:a:x"
	c := testFlowControl()
	c.callers.known.add(credential{1}, acceptedNow(name))
	for i := range 10 { // namespaces, each of which has a limit too
		for c.inFlight.Acquire(shares.FlowOf(name, fmt.Sprint(i)), 1) {
		}
	}
	call, req := &call{credential: credential{1}}, requestWith("", "")
	req = req.WithContext(request.WithUser(withCall(req.Context(), call), &user.DefaultInfo{Name: name}))
	decided := false
	c.withInFlightLimit(c.withCallerFlow(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		decided = true
		equal(t, "code", codeOf(c.decided(req, nil)), http.StatusTooManyRequests)
	}))).ServeHTTP(httptest.NewRecorder(), req)
	equal(t, "there was a place before", decided, true)
}

// A filter that is missing in the chain is an internal error.
func TestRequestWithoutUserIsNotHandled(t *testing.T) {
	c := testFlowControl()
	req := requestWith("", "")
	for name, ctx := range map[string]context.Context{
		"not in flight": request.WithUser(req.Context(), &user.DefaultInfo{Name: "jane"}),
		"no user":       withCall(req.Context(), &call{inFlight: inFlight{shares: c.unknown, size: 1}}),
	} {
		w := httptest.NewRecorder()
		c.withCallerFlow(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			t.Errorf("%s: handled", name)
		})).ServeHTTP(w, req.WithContext(ctx))
		equal(t, name, w.Code, http.StatusInternalServerError)
	}
}

// A request waits for a seat until its time is up. There is a limit to how many do.
func TestRequestThatHasNoSeatIsNotHandled(t *testing.T) {
	for name, test := range map[string]struct {
		before int // requests that wait
		code   int
	}{
		"in time":              {0, http.StatusGatewayTimeout},
		"behind too many more": {fairqueue.HandSize + 1, http.StatusTooManyRequests}, // the first one is next, and in no queue
	} {
		bubble(t, name, func(t *testing.T) {
			c := testFlowControl()
			c.seats = testSeats(1, 1)
			own := flow{Tenant: "jane"}
			taken := &seat{seats: c.seats, flow: own}
			equal(t, "the first seat", taken.acquire(t.Context()), true)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			var waiting sync.WaitGroup
			for range test.before {
				waiting.Go(func() { (&seat{seats: c.seats, flow: own}).acquire(ctx) })
			}
			synctest.Wait()
			begun := time.Now()
			req := requestWith("", "")
			counted := &call{inFlight: inFlight{shares: c.inFlight, flow: own, size: 1}}
			w := httptest.NewRecorder()
			c.withSeat(func(http.ResponseWriter, *http.Request) { t.Error("handled") })(w, req.WithContext(withCall(ctx, counted)))
			equal(t, "code", w.Code, test.code)
			took, refused := time.Since(begun), test.code == http.StatusTooManyRequests
			if (took == 0) != refused || took >= time.Second {
				t.Errorf("answered after %s", took)
			}
			equal(t, "counted as refused", c.refusedAs(refusedSeats) == 1, refused)
			cancel()
			waiting.Wait()
			taken.end()
		})
	}
}

// Headers count, those that assert a user too, and the body of a known caller with its copies, up to what one flow can
// have.
func TestWhatARequestCountsAsInFlight(t *testing.T) {
	for name, test := range map[string]struct {
		padding, asserted int // in RequestBytes
		body              int64
		most              int64 // of all requests
		known, unknown    int64
	}{
		"a usual one":            {0, 0, 2 << 10, 100, 1, 1},
		"large headers":          {1, 0, 0, 100, 2, 2},
		"headers of a replica":   {1, 2, 0, 100, 4, 4},
		"a large body":           {0, 0, 2 * RequestBytes, 100, 9, 3},
		"a body above the limit": {0, 0, 1 << 30, 100, 17, 5},
		"a body without length":  {0, 0, -1, 100, 17, 5},
		"more than a share":      {9, 0, 0, 12, 3, 3},
		"a single place":         {9, 0, 0, 1, 1, 1},
	} {
		c := &flowControl{inFlight: shares.New(test.most), unknown: shares.New(test.most), maxBody: 4 * RequestBytes}
		req := requestWith("", "")
		req.ContentLength = test.body
		req = req.WithContext(request.WithRequestInfo(req.Context(), &request.RequestInfo{IsResourceRequest: true}))
		req.Header.Set("Padding", strings.Repeat("x", test.padding*RequestBytes))
		req.Header.Set(AssertedUserHeader, strings.Repeat("x", test.asserted*RequestBytes))
		equal(t, name, c.newInFlight(c.inFlight, flow{}, req).size, test.known)
		equal(t, name+", unknown", c.newInFlight(c.unknown, flow{}, req).size, test.unknown)
	}
}

// There are seats for each CPU, and half as many in addition for large bodies. A handler
// that runs on after its response keeps none.
func TestSeatsForEachCPU(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(6))
	synctest.Test(t, func(t *testing.T) {
		c := testFlowControl()
		for s, want := range map[*fairqueue.Seats]int{c.seats: 12, c.largeSeats: 6} {
			late := &seat{seats: s}
			late.end()
			equal(t, "acquired late", late.acquire(t.Context()), false)
			for n := range want + 1 {
				own := &seat{seats: s, flow: flow{Tenant: "one"}}
				defer own.end()
				equal(t, fmt.Sprintf("seat %d of %d is free", n+1, want), takesAtOnce(t, own), n < want)
			}
		}
		equal(t, "counted", testutil.ToFloat64(c.metrics.seatsCapacity), 18)
	})
}

// Requests of an unknown caller whose certificate verifies count against the share of its tenant, all others against
// that of their address. A token is verified by its review alone.
func TestUnknownCallersWaitInTheSharesOfWhomTheyVerifyAs(t *testing.T) {
	jane := assertion("jane")
	never := authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
		t.Error("a token was reviewed before its request was in flight")
		return nil, false, nil
	})
	for name, test := range map[string]struct {
		token, asserted, certificate string
		proxied                      string // by a front proxy
		authn                        authenticator.Request
		known                        string // tenant of the credentials, "" if they are unknown
		want                         string // tenant, "" for an unknown caller
	}{
		"a token":                               {token: "unknown"},
		"a token that is known":                 {token: "known", known: "b", want: "b"},
		"a token that asserts somebody":         {token: "unknown", asserted: jane},
		"a certificate":                         {certificate: "jane", authn: accepting("jane"), want: "jane"},
		"a certificate of a front proxy":        {certificate: "proxy", authn: accepting("jane"), want: frontProxy},
		"a front proxy that names its user":     {certificate: "proxy", proxied: "jane", authn: accepting("jane"), want: "jane"},
		"a certificate that names another user": {certificate: "jane", proxied: "joe", authn: accepting("jane"), want: "jane"},
		"a certificate that does not verify":    {certificate: "jane", authn: saying(nil, false, x509.UnknownAuthorityError{})},
		"a certificate of nobody":               {certificate: "jane", authn: accepting(user.Anonymous)},
		"a certificate that asserts somebody":   {certificate: "jane", asserted: jane, authn: accepting("joe")},
		"a certificate, and a token":            {certificate: "jane", token: "unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			o := &ServerOptions{Intake: newIntake(), MaxInFlight: 10, Authenticator: never}
			if test.authn != nil {
				o.Authenticator = test.authn
			}
			c := must(newFlowControl(o))
			req := requestWith(test.token, test.certificate)
			if test.asserted != "" {
				req.Header.Set(AssertedUserHeader, test.asserted)
			}
			if test.proxied != "" {
				req.Header.Set("X-Remote-User", test.proxied)
			}
			presented, _ := c.callers.hasher.of(req)
			if test.known != "" {
				c.callers.known.add(presented, acceptedNow(test.known))
			}
			served, known, unknown := false, int64(0), int64(1)
			if test.want != "" {
				known, unknown = 1, 0
			}
			handler := c.withCredentials(c.withInFlightLimit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				served = true
				equal(t, "of unknown callers", c.unknown.InUse(), unknown)
				equal(t, "of known callers", c.inFlight.InUse(), known)
				equal(t, "of "+test.want, c.inFlight.UsedBy(flow{Tenant: test.want, Namespace: "ns"}), known)
			})))
			handler.ServeHTTP(httptest.NewRecorder(), req.WithContext(withCall(req.Context(), &call{})))
			equal(t, "served", served, true)
			_, accepted := c.callers.known.get(presented)
			equal(t, "accepted without a review", accepted, test.known != "")
			equal(t, "rejected without a review", c.callers.rejected.contains(presented), false)
		})
	}
}

// A response in a term that has ended leaves nothing for the one in a later term.
func TestResponseOfATermThatHasEndedIsWithheld(t *testing.T) {
	call, w := &call{}, httptest.NewRecorder()
	w.Header().Set("Audit-Id", "a")
	req := requestWith("", "").WithContext(withCall(t.Context(), call))
	for _, ends := range []bool{true, false} {
		written := handleInTerm(w, req, Term{}, func(w http.ResponseWriter, _ *http.Request) {
			call.termEnded.Store(call.termEnded.Load() || ends)
			w.Header().Set("Ends", fmt.Sprint(ends))
			_, _ = fmt.Fprint(w, "ends: ", ends)
		})
		equal(t, "written", written, !ends)
		equal(t, "header", w.Header(), map[bool]http.Header{true: {"Audit-Id": {"a"}}, false: {"Audit-Id": {"a"}, "Ends": {"false"}}}[ends])
	}
	equal(t, "body", w.Body.String(), "ends: false")
}
