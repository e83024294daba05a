package intake

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/eventd/eventd/pkg/occurrence"
)

func newIntake(t *testing.T) *Intake {
	t.Helper()
	o := DefaultOptions()
	o.Record = func(*occurrence.Occurrence) {}
	i, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func testFlowControl(t *testing.T) *flowControl {
	t.Helper()
	c, err := newFlowControl(&ServerOptions{Intake: newIntake(t), ReviewTTL: time.Second, MaxInFlight: 10})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func testCallers(t *testing.T, ttl time.Duration) *callers {
	t.Helper()
	c, err := newCallers(ttl, 10)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func testSeats(t *testing.T, count, queueLength int) *seats {
	t.Helper()
	s, err := newSeats("test", count, queueLength, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// presented is a request with a token, as withCredentials calls the next handler.
func presented(ctx context.Context, c *callers, token string) (*http.Request, credential) {
	req := (&http.Request{Header: http.Header{"Authorization": {"Bearer " + token}}, RemoteAddr: "10.0.0.1:1"}).WithContext(ctx)
	own, _ := c.hasher.of(req)
	return req.WithContext(withCall(ctx, &call{credential: own})), own
}

func saying(response *authenticator.Response, ok bool, err error) authenticator.Request {
	return authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) { return response, ok, err })
}

// accepting is an authenticator that accepts everybody as one user.
func accepting(name string) authenticator.Request {
	return saying(&authenticator.Response{User: &user.DefaultInfo{Name: name}}, true, nil)
}

// takesAtOnce reports whether a seat is free.
func takesAtOnce(t *testing.T, s *seat) bool {
	ctx, cancel := context.WithCancel(t.Context())
	taken := make(chan bool, 1)
	go func() { taken <- s.acquire(ctx) }()
	synctest.Wait()
	at := len(taken) == 1
	cancel()
	return <-taken && at
}

func equal[T any](t testing.TB, what string, got, want T) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: %+v, want %+v", what, got, want)
	}
}

// bubble runs a subtest in a bubble of synctest.
func bubble(t *testing.T, name string, test func(*testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

// requestWith returns a request with credentials, "" for none.
func requestWith(token, certificate string) *http.Request {
	info := &request.RequestInfo{Namespace: "ns"}
	req := httptest.NewRequest(http.MethodPost, "/", nil)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if certificate != "" {
		cert := &x509.Certificate{Raw: []byte(certificate), Subject: pkix.Name{CommonName: certificate}}
		req.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}}
	}
	return req.WithContext(request.WithRequestInfo(req.Context(), info))
}
