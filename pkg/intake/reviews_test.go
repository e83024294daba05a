package intake

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
)

// presented is a request with a token, as the flow control passes it on.
func presented(ctx context.Context, c *callers, token string) (*http.Request, credential) {
	req := (&http.Request{Header: http.Header{"Authorization": {"Bearer " + token}}, RemoteAddr: "10.0.0.1:1"}).WithContext(ctx)
	own, _ := c.hasher.of(req)
	return req.WithContext(withCredential(ctx, own)), own
}

func saying(response *authenticator.Response, ok bool, err error) authenticator.Request {
	return authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) { return response, ok, err })
}

// Errors that leave open who somebody is, and those that do not.
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

func TestErrorsOfCredentialsAreToldFromThoseOfAsking(t *testing.T) {
	for name, err := range open {
		if !undecided(err) {
			t.Errorf("%s says that it is nobody", name)
		}
	}
	for name, err := range decided {
		if undecided(err) {
			t.Errorf("%s leaves open who it is", name)
		}
	}
}

// What a review has said is remembered: who was accepted is known, who was rejected is
// not, nor asked about again for a while. What was left open changes nothing.
func TestWhatIsRememberedOfAReview(t *testing.T) {
	jane := &authenticator.Response{User: &user.DefaultInfo{Name: "jane"}}
	type result struct {
		authn           authenticator.Request
		known, rejected bool // of credentials that were known before
	}
	results := map[string]result{
		"accepted":                  {saying(jane, true, nil), true, false},
		"rejected":                  {saying(nil, false, nil), false, true},
		"accepted, but for a doubt": {saying(jane, true, &url.Error{Err: errors.New("no connection")}), true, false},
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
						c, err := newCallers(ttl, 10)
						if err != nil {
							t.Fatal(err)
						}
						req, own := presented(t.Context(), c, "a")
						if before {
							c.known.accept(own, "jane", time.Now())
							time.Sleep(time.Minute) // its review is kept no more
						}
						_, _, _ = c.around(test.authn).AuthenticateRequest(req)
						_, _, known := c.known.get(own)
						if want := test.known && (before || name == "accepted"); known != want {
							t.Errorf("known %t, want %t", known, want)
						}
						if rejected := c.rejected.contain(own); rejected != test.rejected {
							t.Errorf("rejected %t", rejected)
						}
					})
				})
			}
		}
	}
}

// Who is known has reviews of its own to use, however many strangers have used up
// theirs.
func TestReviewsOfKnownCallersAreNotThoseOfStrangers(t *testing.T) {
	for name, test := range map[string]struct {
		known bool
		waits bool
	}{"known": {true, false}, "stranger": {false, true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, err := newCallers(time.Second, 10)
				if err != nil {
					t.Fatal(err)
				}
				req, own := presented(t.Context(), c, "a")
				if test.known {
					c.known.accept(own, "jane", time.Now())
					time.Sleep(time.Minute)
				}
				if !c.ofStrangers.rate.AllowN(time.Now(), tokenReviewBurst) {
					t.Fatal("there are fewer reviews than there should be")
				}
				begun := time.Now()
				if _, ok, err := c.around(saying(&authenticator.Response{User: &user.DefaultInfo{Name: "jane"}}, true, nil)).AuthenticateRequest(req); !ok || err != nil {
					t.Errorf("answered %t, %v", ok, err)
				}
				if waited := time.Since(begun); (waited > 0) != test.waits {
					t.Errorf("waited for %s", waited)
				}
			})
		})
	}
}
