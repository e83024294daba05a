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

	"github.com/eventd/eventd/internal/fairqueue"
	"github.com/eventd/eventd/pkg/occurrence"
)

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func newIntake() *Intake {
	o := DefaultOptions()
	o.Record = func(*occurrence.Occurrence) {}
	return must(New(o))
}

func testFlowControl() *flowControl {
	return must(newFlowControl(&ServerOptions{Intake: newIntake(), ReviewTTL: time.Second, MaxInFlight: 10}))
}

func testSeats(count, queueLength int) *fairqueue.Seats {
	return must(fairqueue.New("test", count, queueLength, nil))
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
	info := &request.RequestInfo{IsResourceRequest: true, Namespace: "ns"}
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
