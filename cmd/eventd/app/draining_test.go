package app

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"syscall"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/test/await"
)

// caller posts Events, over one connection until the server drains it.
type caller struct {
	t         *testing.T
	namespace string
	protocol  string
	client    kubernetes.Interface
	answer    answer
}

// answer is the last answer, or an error.
type answer struct {
	code       int
	protocol   string
	connection string // the client's address
	last       bool   // with Connection: close
	err        error
}

const http1, http2 = "HTTP/1.1", "HTTP/2.0"

func newCaller(t *testing.T, config *rest.Config, namespace, protocol string) *caller {
	c := &caller{t: t, namespace: namespace, protocol: protocol}
	config = rest.CopyConfig(config)
	if protocol == http1 {
		config.NextProtos = []string{"http/1.1"}
	}
	trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) { c.answer.connection = info.Conn.LocalAddr().String() }}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			response, err := next.RoundTrip(req.WithContext(httptrace.WithClientTrace(req.Context(), trace)))
			if err == nil {
				c.answer.code, c.answer.protocol, c.answer.last = response.StatusCode, response.Proto, response.Close
			}
			return response, err
		})
	})
	c.client = kubernetes.NewForConfigOrDie(config)
	return c
}

func (c *caller) post(name string) answer {
	c.answer.err = create(c.t.Context(), c.client, c.namespace, name)
	return c.answer
}

// accepted posts an Event and requires that it is accepted.
func (c *caller) accepted(name string) answer {
	c.t.Helper()
	answer := c.post(name)
	if answer.err != nil || answer.protocol != c.protocol {
		c.t.Fatalf("%s: %+v", name, answer)
	}
	return answer
}

// A Service keeps established connections until the listener closes.
func TestClientsOpenNewConnectionsAfterTheShutdownHasBegun(t *testing.T) {
	a := startAPIServer(t)
	c := a.startChild(t, "--shutdown-delay-duration=25s")
	one, two := newCaller(t, c.config, "shop", http1), newCaller(t, c.config, "shop", http2)
	inFlight := make(chan answer, 1)
	go func() { inFlight <- one.post("web.1") }()
	receive(t, "the write reaches the apiserver", a.creating)
	c.signal(syscall.SIGTERM)
	c.awaitLog("Shutting down")
	close(a.release)

	// All requests are accepted, and each answer is the last one on its connection.
	if answer := receive(t, "the answer", inFlight); answer.err != nil || answer.code != http.StatusCreated || !answer.last {
		t.Errorf("the request in flight: %+v", answer)
	}
	for i := range 10 {
		if answer := one.accepted(fmt.Sprint("web.1.", i)); !answer.last {
			t.Errorf("over HTTP/1.1: %+v", answer)
		}
	}
	n := 0
	next := func() string {
		n++
		return two.accepted(fmt.Sprint("web.2.", n)).connection
	}
	for range 3 {
		former := next()
		// The next request may be sent before GOAWAY arrives.
		await.Until(t, "HTTP/2 uses another connection", func() bool { return next() != former })
	}
	c.terminate(1)
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
	want := func(want, what, method string, header ...string) {
		t.Helper()
		req := httptest.NewRequestWithContext(t.Context(), method, "/", nil)
		for _, name := range header {
			req.Header.Set(name, "x")
		}
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, req)
		if got := recorder.Result().Header.Get("Connection"); got != want {
			t.Errorf("%s: Connection is %q, want %q", what, got, want)
		}
	}
	want("", "before the shutdown", http.MethodGet)
	duringRequest = func() { close(begun) }
	want("close", "a request in flight", http.MethodPost)
	duringRequest = func() {}
	want("close", "without a status", http.MethodGet)
	want("close", "with a status", http.MethodPost)
	want("", "another replica", http.MethodPost, "Eventd-Asserted-User")
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
