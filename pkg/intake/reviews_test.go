package intake

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
)

func TestCredentialsAreATokenACertificateOrBoth(t *testing.T) {
	h := newHasher()
	_, presented := h.of(requestWith("", ""))
	equal(t, "nothing is presented", presented, false)
	seen := map[credential]bool{}
	for _, c := range [][2]string{{"a", ""}, {"b", ""}, {"", "a"}, {"", "b"}, {"a", "a"}, {"a", "b"}, {"b", "a"}} {
		one, presented := h.of(requestWith(c[0], c[1]))
		if again, _ := h.of(requestWith(c[0], c[1])); !presented || seen[one] || again != one {
			t.Errorf("token %q, certificate %q: presented %t, like others %t, the same again %t",
				c[0], c[1], presented, seen[one], again == one)
		}
		seen[one] = true
	}
	if another, _ := newHasher().of(requestWith("a", "")); seen[another] {
		t.Error("two processes have the same hash of a token")
	}
	// The token of a replica is reviewed for another audience.
	req := requestWith("a", "")
	req.Header.Set(AssertedUserHeader, "somebody")
	if one, presented := h.of(req); !presented || seen[one] {
		t.Errorf("a replica's token: presented %t, like a client's %t", presented, seen[one])
	}
}

// The memory in which a token is hashed is used again, and would keep it for as long as there is no other.
func TestTokenIsNotKeptOnceItIsHashed(t *testing.T) {
	k := &keyedHash{Hash: sha256.New()}
	h := hasher{&sync.Pool{New: func() any { return k }}}
	_, _ = h.of(requestWith("secret", ""))
	if kept := k.of[:cap(k.of)]; len(kept) < len("secret") || bytes.Contains(kept, []byte("secret")) {
		t.Errorf("kept %q", kept)
	}
}

func acceptedNow(user string) knownCredential {
	return knownCredential{user: user, accepted: time.Now()}
}

// A tenant with many credentials evicts its own least recently used one.
func TestManyCredentialsOfOneTenantEvictNoOthers(t *testing.T) {
	k := newKnownCredentials(4)
	k.add(credential{1}, acceptedNow("quiet"))
	for n := byte(2); n <= 4; n++ {
		k.add(credential{n}, acceptedNow("many"))
	}
	k.get(credential{2})
	k.add(credential{5}, acceptedNow("many"))
	k.add(credential{6}, acceptedNow("another"))
	known := map[byte]bool{}
	for n := byte(1); n <= 6; n++ {
		_, known[n] = k.get(credential{n})
	}
	equal(t, "known", known, map[byte]bool{1: true, 2: true, 3: false, 4: false, 5: true, 6: true})
	equal(t, "held", k.cache.Len(), 4)
}

func TestCredentialsAreHeldOnceUntilTheyAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKnownCredentials(2)
		want := func(want bool, held int) {
			t.Helper()
			_, known := k.get(credential{})
			equal(t, "known", known, want)
			equal(t, "held", k.cache.Len(), held)
		}
		k.add(credential{}, acceptedNow("tenant"))
		k.add(credential{}, acceptedNow("tenant"))
		time.Sleep(knownFor)
		want(true, 1)
		time.Sleep(time.Nanosecond)
		want(false, 0)
		k.add(credential{}, acceptedNow("tenant"))
		k.remove(credential{})
		want(false, 0)
	})
}

// Accepted credentials are known after a review, rejected ones are not reviewed again
// for a while, and an undecided review changes nothing.
func TestResultOfAReviewIsKept(t *testing.T) {
	jane := &authenticator.Response{User: &user.DefaultInfo{Name: "jane"}}
	noConnection := &url.Error{Op: "Post", URL: "https://apiserver", Err: errors.New("no connection")}
	type result struct {
		authn           authenticator.Request
		known, rejected bool // of credentials that were known before
	}
	results := map[string]result{
		"accepted":                {saying(jane, true, nil), true, false},
		"rejected":                {saying(nil, false, nil), false, true},
		"accepted, with an error": {saying(jane, true, noConnection), true, false},
	}
	// Errors of the authentication itself.
	for name, err := range map[string]error{
		"a request that failed": noConnection,
		"not waited for":        context.Canceled,
		"of a type of its own":  fmt.Errorf("wrapped: %w", context.DeadlineExceeded),
	} {
		results[name] = result{saying(nil, false, err), true, false}
	}
	// Errors about credentials.
	for name, err := range map[string]error{
		"a plain text":              errors.New("invalid bearer token"),
		"an invalid certificate":    x509.CertificateInvalidError{Reason: x509.Expired},
		"another CA":                fmt.Errorf("verifying: %w", x509.UnknownAuthorityError{}),
		"another host":              x509.HostnameError{Certificate: &x509.Certificate{}},
		"a critical extension":      x509.UnhandledCriticalExtension{},
		"a weak algorithm":          x509.InsecureAlgorithmError(x509.MD5WithRSA),
		"a header that is no token": fmt.Errorf("decoding: %w", base64.CorruptInputError(3)),
	} {
		results[name] = result{saying(nil, false, err), false, true}
	}
	for name, test := range results {
		for _, ttl := range []time.Duration{-1, time.Second} {
			for _, before := range []bool{true, false} {
				bubble(t, fmt.Sprintf("%s, keeping reviews for %s, known before: %t", name, ttl, before), func(t *testing.T) {
					c := must(newCallers(ttl, 10))
					req, own := presented(t.Context(), c, "a")
					if before {
						c.known.add(own, acceptedNow("jane"))
						time.Sleep(time.Minute) // its review is kept no more
					}
					_, _, _ = c.limit(test.authn).AuthenticateRequest(req)
					_, known := c.known.get(own)
					equal(t, "known", known, test.known && (before || name == "accepted"))
					equal(t, "rejected", c.rejected.contains(own), test.rejected)
				})
			}
		}
	}
}

// Known callers, and those whose token verifies, have reviews of their own when unknown
// callers have used up theirs. While a review is cached, its token costs none. A request
// whose review cannot be made in time is not rejected.
func TestWhichReviewsATokenCosts(t *testing.T) {
	const moment = time.Nanosecond // known since just now
	revoked := errors.New("revoked")
	for name, test := range map[string]struct {
		known    time.Duration // since when its review began, 0 if it is unknown
		verified string        // user that it verifies as
		bursts   int           // of reviews of unknown callers at the same address before
		ok       bool
		err      error
		waits    time.Duration
		late     bool    // no review is made
		ofKnown  float64 // reviews of known callers that it costs
	}{
		"just reviewed":      {known: moment, bursts: 40, ok: true},
		"reviewed recently":  {known: time.Second - 1, bursts: 40, ok: true},
		"reviewed before":    {known: time.Second, bursts: 40, ok: true, ofKnown: 1},
		"known":              {known: time.Minute, bursts: 40, ok: true, ofKnown: 1},
		"verified":           {verified: "a", bursts: 40, ok: true, ofKnown: 1},
		"verified, rejected": {verified: "a", bursts: 40, ofKnown: 1},
		"verified, revoked":  {verified: "a", bursts: 40, err: revoked, ofKnown: 1},
		"unknown":            {ok: true},
		"unknown, in time":   {bursts: 1, ok: true, waits: time.Second / time.Duration(tokenReviews.perSecond)},
		"unknown, too late":  {bursts: 40, ok: true, err: errReviews, late: true},
	} {
		bubble(t, name, func(t *testing.T) {
			c := must(newCallers(time.Second, 10))
			req, own := presented(t.Context(), c, "a")
			callOf(req.Context()).verified = test.verified
			if test.known > 0 {
				c.known.add(own, acceptedNow("jane"))
				time.Sleep(test.known)
			}
			for range test.bursts {
				c.ofUnknown.rate.ReserveN(time.Now(), tokenReviews.burst)
			}
			made, begun := false, time.Now()
			_, ok, err := c.limit(authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
				made = true
				return &authenticator.Response{User: &user.DefaultInfo{Name: "jane"}}, test.ok, test.err
			})).AuthenticateRequest(req)
			equal(t, "made", made, !test.late)
			equal(t, "waited", time.Since(begun), test.waits)
			equal(t, "accepted", ok, test.ok && made)
			equal(t, "error", err, test.err)
			equal(t, "reviews of known callers", float64(tokenReviews.burst)-c.ofKnown.rate.Tokens(), test.ofKnown)
			_, known := c.known.get(own)
			equal(t, "known", known, ok)
			equal(t, "rejected", c.rejected.contains(own), !ok && made)
		})
	}
}

// There is one review at a time for all requests with one token. They share whether it
// is accepted, and not the user.
func TestReviewIsSharedAndItsUserIsNot(t *testing.T) {
	rejected, broken := errors.New("invalid bearer token"), errors.New("panic")
	once := []time.Duration{0}
	for name, test := range map[string]struct {
		ttl   time.Duration
		ok    bool
		err   error
		calls []time.Duration
	}{
		"accepted":                      {time.Second, true, nil, []time.Duration{0, time.Second, time.Second}},
		"rejected":                      {time.Second, false, nil, once},
		"rejected for a reason":         {time.Second, false, rejected, once},
		"accepted, with an error":       {time.Second, true, rejected, once},
		"a panic":                       {time.Second, false, broken, once},
		"accepted, and nothing is kept": {-1, true, nil, []time.Duration{0, 0, 0}},
	} {
		bubble(t, name, func(t *testing.T) {
			c := must(newCallers(test.ttl, 10))
			calls, begun := make(chan time.Duration, 3), time.Now()
			around := c.limit(authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
				calls <- time.Since(begun)
				time.Sleep(time.Second)
				if test.err == broken {
					panic(broken)
				}
				return &authenticator.Response{User: &user.DefaultInfo{Name: req.Header.Get("X-User")}}, test.ok, test.err
			}))
			var all sync.WaitGroup
			for i := range 3 {
				all.Go(func() {
					defer func() { equal(t, "a panic", recover() != nil, test.err == broken) }()
					req, _ := presented(t.Context(), c, "a")
					req.Header.Set("X-User", fmt.Sprint("user-", i))
					response, ok, err := around.AuthenticateRequest(req)
					equal(t, "accepted", ok, test.ok)
					equal(t, "error", err, test.err)
					if ok && err == nil {
						equal(t, "user", response.User.GetName(), fmt.Sprint("user-", i))
					}
				})
			}
			all.Wait()
			close(calls)
			equal(t, "calls", len(calls), len(test.calls))
			for _, want := range test.calls {
				equal(t, "called after", <-calls, want)
			}
		})
	}
}

// A review outlives its request.
func TestReviewOfACancelledRequestIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := must(newCallers(time.Second, 10))
		gone := errors.New("gone")
		ctx, leave := context.WithCancelCause(t.Context())
		req, own := presented(ctx, c, "a")
		time.AfterFunc(time.Millisecond, func() { leave(gone) })
		begun := time.Now()
		slow := authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
			time.Sleep(time.Second)
			return accepting("jane").AuthenticateRequest(req)
		})
		_, ok, err := c.limit(slow).AuthenticateRequest(req)
		equal(t, "accepted", ok, false)
		equal(t, "error", err, gone)
		equal(t, "waited", time.Since(begun), time.Millisecond)
		time.Sleep(time.Second)
		synctest.Wait()
		known, ok := c.known.get(own)
		equal(t, "known", ok, true)
		equal(t, "accepted at", known.accepted, begun)
	})
}

// A certificate is known when it is verified, so that its requests count in the flow of its user.
func TestCertificatesCostNoReviews(t *testing.T) {
	for name, test := range map[string]struct {
		user   string
		ok     bool
		err    error
		holder string // "" if it is not known then
	}{
		"accepted":         {"jane", true, nil, "jane"},
		"of a front proxy": {"joe", true, nil, frontProxy},
		"rejected":         {"jane", false, nil, ""},
		"not verified":     {"jane", false, x509.UnknownAuthorityError{}, ""},
		"with an error":    {"jane", true, errors.New("no connection"), ""},
	} {
		bubble(t, name, func(t *testing.T) {
			c := must(newCallers(time.Second, 10))
			req := requestWith("", "jane")
			own, _ := c.hasher.of(req)
			req = req.WithContext(withCall(t.Context(), &call{credential: own}))
			response := &authenticator.Response{User: &user.DefaultInfo{Name: test.user}}
			_, ok, err := c.limit(saying(response, test.ok, test.err)).AuthenticateRequest(req)
			equal(t, "accepted", ok, test.ok)
			equal(t, "error", err, test.err)
			known, ok := c.known.get(own)
			equal(t, "known", ok, test.holder != "")
			equal(t, "holder", known.user, test.holder)
			equal(t, "rejected from now on", c.rejected.contains(own), false)
			for _, reviews := range []*reviews{c.ofKnown, c.ofUnknown} {
				equal(t, "reviews that are left", reviews.rate.Tokens(), float64(tokenReviews.burst))
			}
			equal(t, "holder of a token beside it", holderOf(requestWith("a", "jane"), response.User), test.user)
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
		c := testFlowControl()
		handler := withAuthentication(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			t.Errorf("%s: handled", name)
		}), saying(nil, false, test.err), c)
		w, req := httptest.NewRecorder(), requestWith("", "")
		handler.ServeHTTP(w, req.WithContext(withCall(req.Context(), &call{})))
		equal(t, name+": code", w.Code, test.code)
		equal(t, name+": counted as refused", c.refusedAs(refusedReviews), test.counts)
	}
}

// Whether the credentials of a watch are still accepted is not known while there are too many reviews.
func TestTooManyReviewsEndNoWatch(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		c := must(newCallers(time.Second, 10))
		_, own := presented(t.Context(), c, "a")
		q := &queries{authn: c.limit(saying(nil, false, nil))}
		watch := &call{credential: own, presented: requestWith("a", "")}
		for range 40 {
			c.ofUnknown.rate.ReserveN(time.Now(), tokenReviews.burst)
		}
		equal(t, "authentic, when it cannot be reviewed", q.authentic(t.Context(), watch), true)
		time.Sleep(2 * time.Minute) // until there are reviews again
		equal(t, "authentic, when it is rejected", q.authentic(t.Context(), watch), false)
	})
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
		authn := notAnonymous(saying(&authenticator.Response{User: &test.u}, true, test.err))
		_, ok, err := authn.AuthenticateRequest(&http.Request{})
		equal(t, name+": accepted", ok, test.want)
		equal(t, name+": error", err, test.err)
	}
}
