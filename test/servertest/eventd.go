// Package servertest has the servers that tests of kubectl eventd need: one that answers as eventd with what a
// test has prepared, a kube-apiserver of a few resources for tests without a control plane, and the end of
// port forwarding in a kubelet. They end with their tests.
package servertest

import (
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"path"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Eventd is a TLS server in the place of eventd. It keeps the requests.
type Eventd struct {
	*httptest.Server
	mu       sync.Mutex
	requests []*http.Request
}

// NewEventd starts a server with a handler.
func NewEventd(t testing.TB, handler http.Handler) *Eventd {
	t.Helper()
	e := &Eventd{}
	e.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		e.mu.Lock()
		e.requests = append(e.requests, req)
		e.mu.Unlock()
		handler.ServeHTTP(w, req)
	}))
	e.EnableHTTP2 = true
	e.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	e.Config.ErrorLog = log.New(io.Discard, "", 0) // handshakes that clients end
	e.StartTLS()
	t.Cleanup(func() {
		e.CloseClientConnections()
		e.Close()
	})
	return e
}

// Address is its host and port.
func (e *Eventd) Address() string { return e.Listener.Addr().String() }

// Fingerprint is that of its certificate.
func (e *Eventd) Fingerprint() string {
	sum := sha256.Sum256(e.Certificate().Raw)
	return hex.EncodeToString(sum[:])
}

// Requests are those that have arrived.
func (e *Eventd) Requests() []*http.Request {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]*http.Request(nil), e.requests...)
}

// Answers is a handler that answers each resource with an object, and others with 404.
type Answers map[string]any

// ServeHTTP implements http.Handler.
func (a Answers) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	object, ok := a[path.Base(req.URL.Path)]
	if !ok {
		http.NotFound(w, req)
		return
	}
	WriteJSON(w, http.StatusOK, object)
}

// Refuse is a handler that answers everything with a Status.
func Refuse(code int, reason metav1.StatusReason, message string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		WriteJSON(w, code, Failure(code, reason, message))
	})
}

// Failure is a Status of an error.
func Failure(code int, reason metav1.StatusReason, message string) *metav1.Status {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message,
	}
}

// WriteJSON answers with an object.
func WriteJSON(w http.ResponseWriter, code int, object any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(object)
}

// Frame writes a frame of a watch.
func Frame(w http.ResponseWriter, eventType string, object any) {
	_ = json.NewEncoder(w).Encode(map[string]any{"type": eventType, "object": object})
	w.(http.Flusher).Flush()
}
