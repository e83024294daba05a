package app

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// caller posts Events, over one connection until the server drains it.
type caller struct {
	t         *testing.T
	config    *rest.Config
	namespace string
	transport *http.Transport
}

const http1, http2 = "HTTP/1.1", "HTTP/2.0"

func newCaller(t *testing.T, config *rest.Config, namespace, protocol string) *caller {
	t.Helper()
	tlsConfig, err := rest.TLSConfigFor(config)
	if err != nil {
		t.Fatal(err)
	}
	protocols := &http.Protocols{}
	protocols.SetHTTP1(protocol == http1)
	protocols.SetHTTP2(protocol == http2)
	transport := &http.Transport{TLSClientConfig: tlsConfig, Protocols: protocols}
	t.Cleanup(transport.CloseIdleConnections)
	return &caller{t, config, namespace, transport}
}

// result is an answer, or an error.
type result struct {
	code       int
	protocol   string
	connection string // the client's address
	last       bool   // with Connection: close
	err        error
}

func (c *caller) post(name string) result {
	req, err := c.request(name)
	if err != nil {
		return result{err: err}
	}
	var answer result
	trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) { answer.connection = info.Conn.LocalAddr().String() }}
	response, err := c.transport.RoundTrip(req.WithContext(httptrace.WithClientTrace(req.Context(), trace)))
	if err != nil {
		return result{err: err}
	}
	defer response.Body.Close()
	_, answer.err = io.Copy(io.Discard, response.Body)
	answer.code, answer.protocol, answer.last = response.StatusCode, response.Proto, response.Close
	return answer
}

func (c *caller) request(name string) (*http.Request, error) {
	body, err := runtime.Encode(scheme.Codecs.LegacyCodec(corev1.SchemeGroupVersion), &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: name, Namespace: c.namespace},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: c.namespace, Name: "web"},
		Reason:         "Started", Message: "Container started", Type: corev1.EventTypeNormal, Count: 1,
		Source: corev1.EventSource{Component: "tester"},
	})
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, c.config.Host+"/api/v1/namespaces/"+c.namespace+"/events", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", runtime.ContentTypeJSON)
	if c.config.BearerToken != "" {
		req.Header.Set("Authorization", "Bearer "+c.config.BearerToken)
	}
	return req, nil
}

// accepted posts an Event and requires that it is accepted.
func (c *caller) accepted(name, protocol string) result {
	c.t.Helper()
	answer := c.post(name)
	if answer.err != nil || answer.code >= 300 || answer.protocol != protocol {
		c.t.Fatalf("%s: %+v", name, answer)
	}
	return answer
}

// A Service keeps established connections until the listener closes.
func TestClientsOpenNewConnectionsAfterTheShutdownHasBegun(t *testing.T) {
	a := startAPIServer(t)
	c := startChild(t, a, "--shutdown-delay-duration=25s")
	one, two := newCaller(t, c.config, "shop", http1), newCaller(t, c.config, "shop", http2)
	inFlight := make(chan result, 1)
	go func() { inFlight <- one.post("web.1") }()
	receive(t, "the write reaches the apiserver", a.creating)
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	c.awaitLine(t, "Shutting down")
	close(a.release)

	// All requests are accepted, and each answer is the last one on its connection.
	if answer := receive(t, "the answer", inFlight); answer.err != nil || answer.code != http.StatusCreated || !answer.last {
		t.Errorf("the request in flight: %+v", answer)
	}
	for i := range 10 {
		if answer := one.accepted(fmt.Sprint("web.1.", i), http1); !answer.last {
			t.Errorf("over HTTP/1.1: %+v", answer)
		}
	}
	n := 0
	next := func() string {
		n++
		return two.accepted(fmt.Sprint("web.2.", n), http2).connection
	}
	for range 3 {
		former := next()
		// The next request may be sent before GOAWAY arrives.
		eventually(t, "HTTP/2 uses another connection", func() bool { return next() != former })
	}
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	if stderr, state := c.end(t); state.ExitCode() != 1 {
		t.Errorf("%s\n%s", state, stderr)
	}
}

func TestConnectionsAreDrainedFromTheBeginningOfTheShutdown(t *testing.T) {
	begun := make(chan struct{})
	duringRequest := func() {}
	handler := withConnectionDraining(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Del("Connection") // like an inner handler
		duringRequest()
		if req.Method == http.MethodPost {
			w.WriteHeader(http.StatusCreated)
		}
		_, _ = w.Write([]byte("answer"))
	}), begun)
	connectionHeader := func(method string, header ...string) string {
		req := httptest.NewRequestWithContext(t.Context(), method, "/", nil)
		for _, name := range header {
			req.Header.Set(name, "x")
		}
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, req)
		return recorder.Result().Header.Get("Connection")
	}
	if got := connectionHeader(http.MethodGet); got != "" {
		t.Errorf("before the shutdown: %q", got)
	}
	duringRequest = func() { close(begun) }
	if got := connectionHeader(http.MethodPost); got != "close" {
		t.Errorf("a request in flight: %q", got)
	}
	duringRequest = func() {}
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		if got := connectionHeader(method); got != "close" {
			t.Errorf("%s: %q", method, got)
		}
	}
	if got := connectionHeader(http.MethodPost, "Eventd-Asserted-User"); got != "" {
		t.Errorf("another replica: %q", got)
	}
}
