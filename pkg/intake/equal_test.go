package intake

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"
	"testing/synctest"

	"k8s.io/apiserver/pkg/endpoints/request"
)

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
