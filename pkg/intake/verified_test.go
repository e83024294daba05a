package intake

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// Requests of an unknown caller whose credentials verify locally count against the share
// of its tenant, all others against that of their address. The token is still reviewed.
func TestUnknownCallersWaitInTheSharesOfWhomTheyVerifyAs(t *testing.T) {
	const own = "system:serviceaccount:kube-system:eventd"
	key := testKeys()["ES256"]
	asserted, err := EncodeUser(&user.DefaultInfo{Name: "jane"})
	if err != nil {
		t.Fatal(err)
	}
	never := authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
		t.Error("a token was reviewed before its request was in flight")
		return nil, false, nil
	})
	for name, test := range map[string]struct {
		token, assertion, certificate string
		authn                         authenticator.Request
		alone                         bool   // it has no other replicas
		known                         string // tenant of the credentials, "" if they are unknown
		want                          string // tenant, "" for an unknown caller
	}{
		"a token that verifies":                        {token: key.token("a", "x"), want: "system:serviceaccount:a"},
		"a token that does not":                        {token: newTestKey(key.id, "ES256").token("a", "x")},
		"no such token":                                {token: "bogus"},
		"a token that is known":                        {token: key.token("a", "x"), known: "b", want: "b"},
		"a replica's token":                            {token: key.token("kube-system", "eventd"), assertion: asserted, want: "jane"},
		"a replica's token, asserting nobody":          {token: key.token("kube-system", "eventd"), assertion: "!"},
		"a replica's token, and nothing asserted":      {token: key.token("kube-system", "eventd"), want: "system:serviceaccount:kube-system"},
		"a replica's token, to one that is alone":      {token: key.token("kube-system", "eventd"), assertion: asserted, alone: true, want: "system:serviceaccount:kube-system"},
		"a client's token that asserts somebody":       {token: key.token("a", "x"), assertion: asserted, want: "system:serviceaccount:a"},
		"a certificate":                                {certificate: "jane", authn: accepting("jane"), want: "jane"},
		"a certificate of a front proxy":               {certificate: "proxy", authn: accepting("jane"), want: frontProxy},
		"a certificate that does not verify":           {certificate: "jane", authn: saying(nil, false, x509.UnknownAuthorityError{})},
		"a certificate of nobody":                      {certificate: "jane", authn: accepting(user.Anonymous)},
		"a certificate that asserts somebody":          {certificate: "jane", assertion: asserted, authn: accepting("joe")},
		"a certificate, and a token that verifies":     {certificate: "jane", token: key.token("a", "x"), want: "system:serviceaccount:a"},
		"a certificate, and a token that verifies not": {certificate: "jane", token: "bogus"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := newFlowControl(&ServerOptions{Intake: newIntake(t), Authenticator: never, ReviewTTL: time.Second, MaxInFlight: 10})
			if err != nil {
				t.Fatal(err)
			}
			if test.authn != nil {
				c.callers.authn = test.authn
			}
			c.callers.issuer = &Issuer{wanted: make(chan struct{}, 1)}
			c.callers.issuer.keys.Store(parsedTestKeys(t))
			if !test.alone {
				c.callers.ownName = func() string { return own }
			}
			req := httptest.NewRequestWithContext(request.WithRequestInfo(t.Context(), &request.RequestInfo{Namespace: "ns"}), http.MethodPost, "/", nil)
			if test.token != "" {
				req.Header.Set("Authorization", "Bearer "+test.token)
			}
			if test.assertion != "" {
				req.Header.Set(AssertedUserHeader, test.assertion)
			}
			if test.certificate != "" {
				req.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{Raw: []byte("raw"), Subject: pkix.Name{CommonName: test.certificate}}}}
			}
			presented, _ := c.callers.hasher.of(req)
			if test.known != "" {
				c.callers.known.add(presented, test.known, time.Now())
			}
			served := false
			handler := c.withCredentials(c.withInFlightLimit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				served = true
				known, unknown := int64(0), int64(1)
				if test.want != "" {
					known, unknown = 1, 0
				}
				if got := c.inFlight.UsedBy(flow{Tenant: test.want, Namespace: "ns"}); got != known || c.inFlight.InUse() != known || c.unknown.InUse() != unknown {
					t.Errorf("%d are of %q, %d of known callers, %d of others", got, test.want, c.inFlight.InUse(), c.unknown.InUse())
				}
			})))
			handler.ServeHTTP(httptest.NewRecorder(), req.WithContext(withCall(req.Context(), &call{})))
			if !served {
				t.Error("it was refused")
			}
			if _, _, known := c.callers.known.get(presented); known != (test.known != "") || c.callers.rejected.contains(presented) {
				t.Error("it is accepted or rejected without a review")
			}
		})
	}
}

// A token that verifies is reviewed in the flow of its tenant. Then it is known or
// rejected, as any other.
func TestTokenThatVerifiesIsReviewedAmongThoseOfKnownCallers(t *testing.T) {
	for name, test := range map[string]struct {
		tenant   string
		ok       bool
		err      error
		reviewed bool
	}{
		"accepted":           {"a", true, nil, true},
		"rejected":           {"a", false, nil, true},
		"rejected, a reason": {"a", false, errors.New("revoked"), true},
		"does not verify":    {"", true, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, err := newCallers(time.Second, 10)
				if err != nil {
					t.Fatal(err)
				}
				for range 40 { // by others at the same address
					c.ofUnknown.rate.ReserveN(time.Now(), tokenReviewBurst)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				req, own := presented(ctx, c, "a")
				callOf(req.Context()).verified = test.tenant
				authn := &askedBy{ok: test.ok, err: test.err}
				_, ok, err := c.limit(authn).AuthenticateRequest(req)
				if (len(authn.calls) > 0) != test.reviewed || test.reviewed && (ok != test.ok || err != test.err) {
					t.Errorf("reviewed %d times, answered %t, %v", len(authn.calls), ok, err)
				}
				_, _, known := c.known.get(own)
				if known != (test.reviewed && test.ok) || c.rejected.contains(own) != (test.reviewed && !test.ok) {
					t.Errorf("known %t, rejected %t", known, c.rejected.contains(own))
				}
			})
		})
	}
}
