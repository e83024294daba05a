package intake_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
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
	"k8s.io/client-go/util/cert"

	"github.com/eventd/eventd/pkg/intake"
	"github.com/eventd/eventd/test/await"
)

// TestWhoCannotBeAskedForIsNotRefused tries the daemon's authenticator with every kind
// of response of the apiserver, and with none.
func TestWhoCannotBeAskedForIsNotRefused(t *testing.T) {
	raw := func(code int, contentType, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", contentType)
			w.WriteHeader(code)
			_, _ = w.Write([]byte(body))
		}
	}
	review := func(status authenticationv1.TokenReviewStatus) http.HandlerFunc {
		return raw(201, jsonType, string(mustJSON(t, authenticationv1.TokenReview{
			TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenReview"}, Status: status,
		})))
	}
	status := func(code int, reason string) http.HandlerFunc {
		return raw(code, jsonType, fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d}`, reason, code))
	}
	known := authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: "reviewed"}}
	unknown := authenticationv1.TokenReviewStatus{}
	refused := authenticationv1.TokenReviewStatus{Error: "[invalid bearer token, square/go-jose: error in cryptographic primitive]"}
	untrusted, ca := certificate(t, "somebody"), certificate(t, "ca")
	const unavailable, unauthorized = http.StatusServiceUnavailable, http.StatusUnauthorized
	type request struct {
		apiserver http.HandlerFunc // nil: nobody listens
		token     string
		cert      *x509.Certificate
		protocol  string // Sec-WebSocket-Protocol
		code      int
	}
	requests := map[string]request{
		"known":                           {review(known), "t", nil, "", 201},
		"known, in spite of a bad cert":   {review(known), "t", untrusted, "", 201},
		"not authenticated":               {review(unknown), "t", nil, "", unauthorized},
		"not authenticated, for a reason": {review(refused), "t", nil, "", unauthorized},
		"bad certificate":                 {review(known), "", untrusted, "", unauthorized},
		"bad certificate and token":       {review(refused), "t", untrusted, "", unauthorized},
		"bad websocket protocol":          {review(known), "", nil, forWebSocket[:len(forWebSocket)-2] + "$$$", unauthorized},
		"websocket protocol":              {review(known), "", nil, forWebSocket, unauthorized}, // no path is one
		"nobody listens":                  {nil, "t", nil, "", unavailable},
		"nobody listens, bad certificate": {nil, "t", untrusted, "", unavailable},
		"no token, nobody listens":        {nil, "", nil, "", unauthorized},
	}
	for name, apiserver := range map[string]http.HandlerFunc{
		"500":                    status(500, "InternalError"),
		"500 without a Status":   raw(500, "text/plain", "oops"),
		"503":                    status(503, "ServiceUnavailable"),
		"429":                    status(429, "TooManyRequests"),
		"eventd may not review":  status(403, "Forbidden"),
		"eventd is not known":    status(401, "Unauthorized"),
		"reviews are not served": status(404, "NotFound"),
		"a page instead":         raw(200, "text/html", "<html>log in</html>"),
		"nothing instead":        raw(200, jsonType, ""),
		"malformed":              raw(201, jsonType, `{"kind":"TokenReview",`),
		"no object":              raw(201, jsonType, `[]`),
		"breaks the connection":  func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"breaks off": func(w http.ResponseWriter, req *http.Request) {
			w.Header().Set("Content-Length", "1000")
			raw(200, jsonType, `{"kind":`)(w, req)
			panic(http.ErrAbortHandler)
		},
		"hangs": func(_ http.ResponseWriter, req *http.Request) {
			_, _ = io.Copy(io.Discard, req.Body) // or the server does not see its client go
			<-req.Context().Done()
		},
	} {
		requests[name] = request{apiserver, "t", nil, "", unavailable}
	}
	for name, test := range requests {
		t.Run(name, func(t *testing.T) {
			timeout := await.Timeout
			if name == "hangs" {
				timeout = 200 * time.Millisecond
			}
			apiserver := httptest.NewServer(test.apiserver)
			defer apiserver.Close()
			if test.apiserver == nil {
				apiserver.Close()
			}
			var user string
			s := serve(t, written(), withServer(func(o *intake.ServerOptions) {
				o.Authenticator = delegatingAuthenticator(t, apiserver.URL, timeout, ca, ca)
			}), authorized(func(a authorizer.Attributes) (authorizer.Decision, string, error) {
				user = a.GetUser().GetName()
				return authorizer.DecisionAllow, "", nil
			}))
			post := func(name, token string) answer {
				req := newRequest(t.Context(), t, http.MethodPost, coreEvents, classic(name, 1), withoutToken, "true")
				if token != "" {
					req.Header.Set("Authorization", "Bearer "+token)
				}
				if test.protocol != "" {
					req.Header.Set("Connection", "Upgrade")
					req.Header.Set("Upgrade", "websocket")
					req.Header.Set("Sec-WebSocket-Protocol", test.protocol)
				}
				if test.cert != nil {
					req.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{test.cert}}
				}
				return s.Send(req)
			}
			a := post("a", test.token)
			switch test.code {
			case unavailable:
				a.Want(t, unavailable, metav1.StatusReasonServiceUnavailable)
				equal(t, "Retry-After", a.Header.Get("Retry-After"), "1")
			case unauthorized:
				a.Want(t, unauthorized, metav1.StatusReasonUnauthorized)
			default:
				a.Want(t, test.code, "")
				equal(t, "user", user, "reviewed")
				// The review that is cached holds while the apiserver is away.
				apiserver.Close()
				post("b", test.token).Want(t, 201, "")
				post("c", "other").Want(t, unavailable, metav1.StatusReasonServiceUnavailable)
			}
		})
	}
}

// delegatingAuthenticator returns an authenticator with all parts of the daemon's, the CAs of clients and of
// front proxies included.
func delegatingAuthenticator(t *testing.T, apiserver string, timeout time.Duration, clients *x509.Certificate, proxies ...*x509.Certificate) authenticator.Request {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	client := must(kubernetes.NewForConfigAndClient(&rest.Config{Host: apiserver, QPS: -1}, &http.Client{Transport: transport}))
	bundle := func(cas ...*x509.Certificate) dynamiccertificates.CAContentProvider {
		var content []byte
		for _, ca := range cas {
			content = append(content, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Raw})...)
		}
		return must(dynamiccertificates.NewStaticCAContent("ca", content))
	}
	authn, _, err := authenticatorfactory.DelegatingAuthenticatorConfig{
		Anonymous:                          &apiserverapi.AnonymousAuthConfig{Enabled: true},
		TokenAccessReviewClient:            client.AuthenticationV1(),
		TokenAccessReviewTimeout:           timeout,
		WebhookRetryBackoff:                &wait.Backoff{Duration: time.Millisecond, Factor: 1.5, Steps: 2},
		CacheTTL:                           time.Minute,
		ClientCertificateCAContentProvider: bundle(clients),
		RequestHeaderConfig: &authenticatorfactory.RequestHeaderConfig{
			UsernameHeaders:     headerrequest.StaticStringSlice{"X-Remote-User"},
			GroupHeaders:        headerrequest.StaticStringSlice{"X-Remote-Group"},
			ExtraHeaderPrefixes: headerrequest.StaticStringSlice{"X-Remote-Extra-"},
			UIDHeaders:          headerrequest.StaticStringSlice{"X-Remote-Uid"},
			CAContentProvider:   bundle(proxies...),
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
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	return must(cert.NewSelfSignedCACert(cert.Config{CommonName: name}, key))
}
