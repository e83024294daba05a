package intake

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/eventd/eventd/pkg/occurrence"
)

// Errors of the authentication itself, and errors about credentials.
var (
	open = map[string]error{
		"a request that failed": &url.Error{Op: "Post", URL: "https://apiserver", Err: errors.New("no connection")},
		"not waited for":        context.Canceled,
		"of a type of its own":  fmt.Errorf("wrapped: %w", context.DeadlineExceeded),
	}
	decided = map[string]error{
		"a plain text":              errors.New("invalid bearer token"),
		"an invalid certificate":    x509.CertificateInvalidError{Reason: x509.Expired},
		"another CA":                fmt.Errorf("verifying: %w", x509.UnknownAuthorityError{}),
		"another host":              x509.HostnameError{Certificate: &x509.Certificate{}},
		"a critical extension":      x509.UnhandledCriticalExtension{},
		"a weak algorithm":          x509.InsecureAlgorithmError(x509.MD5WithRSA),
		"a header that is no token": fmt.Errorf("decoding: %w", base64.CorruptInputError(3)),
	}
)

func TestErrorsAboutCredentialsAreNotUndecided(t *testing.T) {
	for name, err := range open {
		if !Undecided(err) {
			t.Errorf("%s counts as bad credentials", name)
		}
	}
	for name, err := range decided {
		if Undecided(err) {
			t.Errorf("%s counts as undecided", name)
		}
	}
}

// Accepted credentials are known after a review, rejected ones are not reviewed again
// for a while, and an undecided review changes nothing.
func TestResultOfAReviewIsKept(t *testing.T) {
	jane := &authenticator.Response{User: &user.DefaultInfo{Name: "jane"}}
	type result struct {
		authn           authenticator.Request
		known, rejected bool // of credentials that were known before
	}
	results := map[string]result{
		"accepted":                {saying(jane, true, nil), true, false},
		"rejected":                {saying(nil, false, nil), false, true},
		"accepted, with an error": {saying(jane, true, &url.Error{Err: errors.New("no connection")}), true, false},
	}
	for name, err := range open {
		results[name] = result{saying(nil, false, err), true, false}
	}
	for name, err := range decided {
		results[name] = result{saying(nil, false, err), false, true}
	}
	for name, test := range results {
		for _, ttl := range []time.Duration{-1, time.Second} {
			for _, before := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s, keeping reviews for %s, known before: %t", name, ttl, before), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						c := testCallers(t, ttl)
						req, own := presented(t.Context(), c, "a")
						if before {
							c.known.add(own, "jane", time.Now())
							time.Sleep(time.Minute) // its review is kept no more
						}
						_, _, _ = c.limit(test.authn).AuthenticateRequest(req)
						_, _, known := c.known.get(own)
						if want := test.known && (before || name == "accepted"); known != want {
							t.Errorf("known %t, want %t", known, want)
						}
						if rejected := c.rejected.contains(own); rejected != test.rejected {
							t.Errorf("rejected %t", rejected)
						}
					})
				})
			}
		}
	}
}

// Known callers have reviews of their own when unknown callers have used up theirs.
func TestReviewsOfKnownCallersAreNotThoseOfUnknownOnes(t *testing.T) {
	for name, test := range map[string]struct {
		known bool
		waits bool
	}{"known": {true, false}, "unknown": {false, true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := testCallers(t, time.Second)
				req, own := presented(t.Context(), c, "a")
				if test.known {
					c.known.add(own, "jane", time.Now())
					time.Sleep(time.Minute)
				}
				if !c.ofUnknown.rate.AllowN(time.Now(), tokenReviewBurst) {
					t.Fatal("there are fewer reviews than there should be")
				}
				begun := time.Now()
				if _, ok, err := c.limit(accepting("jane")).AuthenticateRequest(req); !ok || err != nil {
					t.Errorf("answered %t, %v", ok, err)
				}
				if waited := time.Since(begun); (waited > 0) != test.waits {
					t.Errorf("waited for %s", waited)
				}
			})
		})
	}
}

// askedBy is an authenticator that takes a second, and returns the user in the header of
// a request.
type askedBy struct {
	mu    sync.Mutex
	calls []time.Duration // since when, when each began
	begun time.Time
	ok    bool
	err   error
}

func (a *askedBy) AuthenticateRequest(req *http.Request) (*authenticator.Response, bool, error) {
	a.mu.Lock()
	a.calls = append(a.calls, time.Since(a.begun))
	a.mu.Unlock()
	time.Sleep(time.Second)
	if a.err != nil && a.err.Error() == "panic" {
		panic(a.err)
	}
	return &authenticator.Response{User: &user.DefaultInfo{Name: req.Header.Get("X-User")}}, a.ok, a.err
}

// There is one review at a time for all requests with one token. They share whether it
// is accepted, and not the user.
func TestReviewIsSharedAndItsUserIsNot(t *testing.T) {
	rejected := errors.New("invalid bearer token")
	for name, test := range map[string]struct {
		ttl   time.Duration
		ok    bool
		err   error
		calls []time.Duration
	}{
		"accepted":                      {time.Second, true, nil, []time.Duration{0, time.Second, time.Second}},
		"rejected":                      {time.Second, false, nil, []time.Duration{0}},
		"rejected for a reason":         {time.Second, false, rejected, []time.Duration{0}},
		"accepted, with an error":       {time.Second, true, rejected, []time.Duration{0}},
		"a panic":                       {time.Second, false, errors.New("panic"), []time.Duration{0}},
		"accepted, and nothing is kept": {-1, true, nil, []time.Duration{0, 0, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := testCallers(t, test.ttl)
				authn := &askedBy{begun: time.Now(), ok: test.ok, err: test.err}
				around := c.limit(authn)
				var all sync.WaitGroup
				for i := range 3 {
					all.Go(func() {
						defer func() {
							if p := recover(); (p != nil) != (name == "a panic") {
								t.Errorf("panicked: %v", p)
							}
						}()
						req, _ := presented(t.Context(), c, "a")
						req.Header.Set("X-User", fmt.Sprint("user-", i))
						response, ok, err := around.AuthenticateRequest(req)
						if ok != test.ok || err != test.err {
							t.Errorf("answered %t, %v", ok, err)
						}
						if ok && err == nil && response.User.GetName() != fmt.Sprint("user-", i) {
							t.Errorf("user-%d is taken for %s", i, response.User.GetName())
						}
					})
				}
				all.Wait()
				if !slices.Equal(authn.calls, test.calls) {
					t.Errorf("asked after %v, want %v", authn.calls, test.calls)
				}
			})
		})
	}
}

// A review outlives its request.
func TestReviewOfACancelledRequestIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testCallers(t, time.Second)
		gone := errors.New("gone")
		ctx, leave := context.WithCancelCause(t.Context())
		req, own := presented(ctx, c, "a")
		time.AfterFunc(time.Millisecond, func() { leave(gone) })
		begun := time.Now()
		if _, ok, err := c.limit(&askedBy{ok: true}).AuthenticateRequest(req); ok || err != gone || time.Since(begun) != time.Millisecond {
			t.Errorf("answered %t, %v after %s", ok, err, time.Since(begun))
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if _, accepted, known := c.known.get(own); !known || accepted != begun {
			t.Errorf("known %t, accepted at %s, asked at %s", known, accepted, begun)
		}
	})
}

// A request whose review cannot be made in time is not rejected.
func TestReviewThatCannotBeMadeInTimeIsNotMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testCallers(t, time.Second)
		for range 40 {
			c.ofUnknown.rate.ReserveN(time.Now(), tokenReviewBurst)
		}
		authn := &askedBy{ok: true}
		req, own := presented(t.Context(), c, "a")
		if _, ok, err := c.limit(authn).AuthenticateRequest(req); ok || err != errReviews || len(authn.calls) > 0 {
			t.Errorf("answered %t, %v, asked %d times", ok, err, len(authn.calls))
		}
		if _, _, known := c.known.get(own); known || c.rejected.contains(own) {
			t.Errorf("known %t, rejected %t", known, c.rejected.contains(own))
		}
	})
}

// While its review is cached, a token costs none.
func TestReviewThatIsKeptIsNotMadeAgain(t *testing.T) {
	for age, want := range map[time.Duration]float64{0: 0, time.Second - 1: 0, time.Second: 1, time.Minute: 1} {
		synctest.Test(t, func(t *testing.T) {
			c := testCallers(t, time.Second)
			req, own := presented(t.Context(), c, "a")
			c.known.add(own, "jane", time.Now())
			time.Sleep(age)
			if _, ok, err := c.limit(accepting("jane")).AuthenticateRequest(req); !ok || err != nil {
				t.Errorf("answered %t, %v", ok, err)
			}
			if got := tokenReviewBurst - c.ofKnown.rate.Tokens(); got != want {
				t.Errorf("a token that was reviewed %s ago costs %v reviews", age, got)
			}
		})
	}
}

// A certificate is verified each time. It is known afterwards, so that its requests
// count in the flow of its user.
func TestCertificatesCostNoReviews(t *testing.T) {
	for name, test := range map[string]struct {
		user   string
		ok     bool
		err    error
		tenant string // "" if it is not known then
	}{
		"accepted":         {"jane", true, nil, occurrence.TenantOf("jane")},
		"of a front proxy": {"joe", true, nil, frontProxy},
		"rejected":         {"jane", false, nil, ""},
		"not verified":     {"jane", false, x509.UnknownAuthorityError{}, ""},
		"with an error":    {"jane", true, errors.New("no connection"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := testCallers(t, time.Second)
				req := &http.Request{Header: http.Header{}, RemoteAddr: "10.0.0.1:1",
					TLS: &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{Raw: []byte("raw"), Subject: pkix.Name{CommonName: "jane"}}}}}
				own, _ := c.hasher.of(req)
				req = req.WithContext(withCall(t.Context(), &call{credential: own}))
				_, ok, err := c.limit(saying(&authenticator.Response{User: &user.DefaultInfo{Name: test.user}}, test.ok, test.err)).AuthenticateRequest(req)
				if ok != test.ok || err != test.err {
					t.Errorf("answered %t, %v", ok, err)
				}
				if tenant, _, known := c.known.get(own); tenant != test.tenant || known != (test.tenant != "") {
					t.Errorf("known %t, of %q", known, tenant)
				}
				if c.rejected.contains(own) || c.ofKnown.rate.Tokens() != tokenReviewBurst || c.ofUnknown.rate.Tokens() != tokenReviewBurst {
					t.Error("it was reviewed, or is rejected from now on")
				}
			})
		})
	}
}

// The status code tells bad credentials, a failed review and too many reviews apart.
func TestResponseToARequestThatIsNotAuthenticated(t *testing.T) {
	for name, test := range map[string]struct {
		err    error
		code   int
		counts float64
	}{
		"rejected":              {nil, http.StatusUnauthorized, 0},
		"rejected for a reason": {errors.New("invalid bearer token"), http.StatusUnauthorized, 0},
		"not asked":             {errReviews, http.StatusTooManyRequests, 1},
		"not answered":          {&url.Error{Op: "Post", Err: errors.New("no connection")}, http.StatusServiceUnavailable, 0},
	} {
		c := testFlowControl(t)
		handler := withAuthentication(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Errorf("%s: handled", name) }), saying(nil, false, test.err), c)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequestWithContext(withCall(request.WithRequestInfo(t.Context(), &request.RequestInfo{}), &call{}), http.MethodGet, "/", nil))
		if got := testutil.ToFloat64(c.metrics.refused.WithLabelValues(refusedReviews)); w.Code != test.code || got != test.counts {
			t.Errorf("%s: answered %d, %v were counted", name, w.Code, got)
		}
	}
}

func TestAnonymousUserIsRejected(t *testing.T) {
	for name, test := range map[string]struct {
		u    user.DefaultInfo
		err  error
		want bool
	}{
		"somebody":          {user.DefaultInfo{Name: "jane", Groups: []string{user.AllAuthenticated}}, nil, true},
		"anonymous":         {user.DefaultInfo{Name: user.Anonymous}, nil, false},
		"not authenticated": {user.DefaultInfo{Name: "jane", Groups: []string{user.AllUnauthenticated}}, nil, false},
		"anonymous, error":  {user.DefaultInfo{Name: user.Anonymous}, errors.New("no connection"), true},
	} {
		_, ok, err := notAnonymous(saying(&authenticator.Response{User: &test.u}, true, test.err)).AuthenticateRequest(&http.Request{})
		if ok != test.want || err != test.err {
			t.Errorf("%s: %t, %v", name, ok, err)
		}
	}
}
