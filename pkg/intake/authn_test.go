package intake_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	apiserverapi "k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/pkg/intake"
)

// TestWhoCannotBeAskedForIsNotRefused tries the daemon's authenticator with every kind
// of response of the apiserver, and with none.
func TestWhoCannotBeAskedForIsNotRefused(t *testing.T) {
	review := func(status authenticationv1.TokenReviewStatus) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusCreated)
			_ = json.NewEncoder(w).Encode(authenticationv1.TokenReview{
				TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenReview"}, Status: status})
		}
	}
	raw := func(code int, contentType, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", contentType)
			w.WriteHeader(code)
			_, _ = w.Write([]byte(body))
		}
	}
	status := func(code int, reason string) http.HandlerFunc {
		return raw(code, "application/json", fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d}`, reason, code))
	}
	known := authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: "reviewed"}}
	untrusted := certificate(t, "somebody")
	const unavailable, unauthorized = http.StatusServiceUnavailable, http.StatusUnauthorized
	for name, test := range map[string]struct {
		apiserver http.HandlerFunc // nil: nobody listens
		token     string
		cert      *x509.Certificate
		proto     string // Sec-WebSocket-Protocol
		code      int
	}{
		"known":                           {review(known), "t", nil, "", 201},
		"known, in spite of a bad cert":   {review(known), "t", untrusted, "", 201},
		"not authenticated":               {review(authenticationv1.TokenReviewStatus{}), "t", nil, "", unauthorized},
		"not authenticated, for a reason": {review(authenticationv1.TokenReviewStatus{Error: "[invalid bearer token, square/go-jose: error in cryptographic primitive]"}), "t", nil, "", unauthorized},
		"bad certificate":                 {review(known), "", untrusted, "", unauthorized},
		"bad certificate and token":       {review(authenticationv1.TokenReviewStatus{Error: "no"}), "t", untrusted, "", unauthorized},
		"bad websocket protocol":          {review(known), "", nil, "base64url.bearer.authorization.k8s.io.$$$", unauthorized},
		"nobody listens":                  {nil, "t", nil, "", unavailable},
		"nobody listens, bad certificate": {nil, "t", untrusted, "", unavailable},
		"no token, nobody listens":        {nil, "", nil, "", unauthorized},
		"websocket protocol":              {review(known), "", nil, "base64url.bearer.authorization.k8s.io.dA", unauthorized}, // no path is one
		"500":                             {status(500, "InternalError"), "t", nil, "", unavailable},
		"500 without a Status":            {raw(500, "text/plain", "oops"), "t", nil, "", unavailable},
		"503":                             {status(503, "ServiceUnavailable"), "t", nil, "", unavailable},
		"429":                             {status(429, "TooManyRequests"), "t", nil, "", unavailable},
		"eventd may not review":           {status(403, "Forbidden"), "t", nil, "", unavailable},
		"eventd is not known":             {status(401, "Unauthorized"), "t", nil, "", unavailable},
		"reviews are not served":          {status(404, "NotFound"), "t", nil, "", unavailable},
		"a page instead":                  {raw(200, "text/html", "<html>log in</html>"), "t", nil, "", unavailable},
		"nothing instead":                 {raw(200, "application/json", ""), "t", nil, "", unavailable},
		"malformed":                       {raw(201, "application/json", `{"kind":"TokenReview",`), "t", nil, "", unavailable},
		"no object":                       {raw(201, "application/json", `[]`), "t", nil, "", unavailable},
		"breaks the connection":           {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "t", nil, "", unavailable},
		"breaks off": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", "1000")
			_, _ = w.Write([]byte(`{"kind":`))
			panic(http.ErrAbortHandler)
		}, "t", nil, "", unavailable},
		"hangs": {func(_ http.ResponseWriter, req *http.Request) {
			_, _ = io.Copy(io.Discard, req.Body) // or the server does not see its client go
			<-req.Context().Done()
		}, "t", nil, "", unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			apiserver := httptest.NewServer(test.apiserver)
			if test.apiserver == nil {
				apiserver.Close()
			} else {
				defer apiserver.Close()
			}
			s := serve(t, written(), func(_ *intake.Options, o *intake.ServerOptions) {
				o.Authenticator = delegatingAuthenticator(t, apiserver.URL)
			})
			req := newRequest(t.Context(), t, http.MethodPost, coreEvents, classic("a", 1))
			if test.token != "" {
				req.Header.Set("Authorization", "Bearer "+test.token)
			} else {
				req.Header.Set(withoutToken, "true")
			}
			if test.proto != "" {
				req.Header.Set("Connection", "Upgrade")
				req.Header.Set("Upgrade", "websocket")
				req.Header.Set("Sec-WebSocket-Protocol", test.proto)
			}
			if test.cert != nil {
				req.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{test.cert}}
			}
			a := s.Send(req)
			switch test.code {
			case unavailable:
				a.Want(t, unavailable, metav1.StatusReasonServiceUnavailable)
				if got := a.Header.Get("Retry-After"); got != "1" {
					t.Errorf("Retry-After %q", got)
				}
			case unauthorized:
				a.Want(t, unauthorized, metav1.StatusReasonUnauthorized)
			default:
				a.Want(t, test.code, "")
			}
		})
	}
}

func TestCachedAnswersHoldWhileTheAPIServerIsAway(t *testing.T) {
	apiserver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(authenticationv1.TokenReview{
			TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenReview"},
			Status:   authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: "reviewed"}}})
	}))
	var user string
	s := serve(t, written(), func(_ *intake.Options, o *intake.ServerOptions) {
		o.Authenticator = delegatingAuthenticator(t, apiserver.URL)
	}, authorized(func(a authorizer.Attributes) (authorizer.Decision, string, error) {
		user = a.GetUser().GetName()
		return authorizer.DecisionAllow, "", nil
	}))
	s.Do(t, http.MethodPost, coreEvents, classic("a", 1), "Authorization", "Bearer t").Want(t, 201, "")
	apiserver.Close()
	s.Do(t, http.MethodPost, coreEvents, classic("b", 1), "Authorization", "Bearer t").Want(t, 201, "")
	if user != "reviewed" {
		t.Errorf("the caller is %q", user)
	}
	s.Do(t, http.MethodPost, coreEvents, classic("c", 1), "Authorization", "Bearer other").
		Want(t, 503, metav1.StatusReasonServiceUnavailable)
}

// delegatingAuthenticator returns an authenticator with all parts of the daemon's.
func delegatingAuthenticator(t *testing.T, apiserver string) authenticator.Request {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	client, err := kubernetes.NewForConfigAndClient(&rest.Config{Host: apiserver, QPS: -1}, &http.Client{Transport: transport})
	if err != nil {
		t.Fatal(err)
	}
	ca := certificate(t, "ca")
	bundle, err := dynamiccertificates.NewStaticCAContent("ca", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Raw}))
	if err != nil {
		t.Fatal(err)
	}
	authn, _, err := authenticatorfactory.DelegatingAuthenticatorConfig{
		Anonymous:                          &apiserverapi.AnonymousAuthConfig{Enabled: true},
		TokenAccessReviewClient:            client.AuthenticationV1(),
		TokenAccessReviewTimeout:           200 * time.Millisecond,
		WebhookRetryBackoff:                &wait.Backoff{Duration: time.Millisecond, Factor: 1.5, Steps: 2},
		CacheTTL:                           time.Minute,
		ClientCertificateCAContentProvider: bundle,
		RequestHeaderConfig: &authenticatorfactory.RequestHeaderConfig{
			UsernameHeaders:     headerrequest.StaticStringSlice{"X-Remote-User"},
			GroupHeaders:        headerrequest.StaticStringSlice{"X-Remote-Group"},
			ExtraHeaderPrefixes: headerrequest.StaticStringSlice{"X-Remote-Extra-"},
			UIDHeaders:          headerrequest.StaticStringSlice{"X-Remote-Uid"},
			CAContentProvider:   bundle,
			AllowedClientNames:  headerrequest.StaticStringSlice{"front-proxy"},
		},
	}.New()
	if err != nil {
		t.Fatal(err)
	}
	return authn
}

// certificate returns a self-signed certificate.
func certificate(t *testing.T, name string) *x509.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}
