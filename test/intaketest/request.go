package intaketest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The paths of the Events of one namespace.
const (
	CoreEvents = "/api/v1/namespaces/ns/events"
	NewEvents  = "/apis/events.k8s.io/v1/namespaces/ns/events"
)

// Answer is a response that was read.
type Answer struct {
	Code   int
	Header http.Header
	Body   []byte
}

// Status is the Status of an answer that refuses.
func (a Answer) Status(t testing.TB) metav1.Status {
	t.Helper()
	var status metav1.Status
	if err := json.Unmarshal(a.Body, &status); err != nil || status.Status != metav1.StatusFailure {
		t.Fatalf("no Status but %d: %s", a.Code, a.Body)
	}
	return status
}

// Event is the core/v1 Event of an answer that accepts.
func (a Answer) Event(t testing.TB) *corev1.Event {
	t.Helper()
	event := &corev1.Event{}
	if err := json.Unmarshal(a.Body, event); err != nil || event.Kind != "Event" {
		t.Fatalf("no Event but %d: %s", a.Code, a.Body)
	}
	return event
}

// Want compares the code, and the reason of an answer that refuses.
func (a Answer) Want(t testing.TB, code int, reason metav1.StatusReason) {
	t.Helper()
	if a.Code != code {
		t.Fatalf("answered %d, want %d: %s", a.Code, code, a.Body)
	}
	if code >= 400 {
		if got := a.Status(t).Reason; got != reason {
			t.Fatalf("reason %q, want %q: %s", got, reason, a.Body)
		}
	}
}

// Do sends a request and reads the answer.
func (s *Server) Do(t testing.TB, method, path string, body any, header ...string) Answer {
	t.Helper()
	return s.DoUntil(t.Context(), t, method, path, body, header...)
}

// DoUntil is Do for a client that goes away when ctx ends.
func (s *Server) DoUntil(ctx context.Context, t testing.TB, method, path string, body any, header ...string) Answer {
	t.Helper()
	defer func() {
		// As in net/http, the client has disconnected.
		if p := recover(); p != nil && (p != http.ErrAbortHandler || ctx.Err() == nil) {
			panic(p)
		}
	}()
	return s.Send(NewRequest(ctx, t, method, path, body, header...))
}

// Post creates a core/v1 Event.
func (s *Server) Post(t testing.TB, event *corev1.Event) Answer {
	t.Helper()
	return s.Do(t, http.MethodPost, CoreEvents, event)
}

// Patch patches a core/v1 Event.
func (s *Server) Patch(t testing.TB, name, format string, args ...any) Answer {
	t.Helper()
	return s.Do(t, http.MethodPatch, CoreEvents+"/"+name, fmt.Sprintf(format, args...))
}

// Send sends a request and reads the answer.
func (s *Server) Send(req *http.Request) Answer {
	r := response{httptest.NewRecorder(), req.Body}
	s.ServeHTTP(r, req)
	return Answer{r.Code, r.Header(), r.Body.Bytes()}
}

// response is that of a server: a deadline in the past ends the read of the body, here by closing it.
type response struct {
	*httptest.ResponseRecorder
	body io.Closer
}

// SetReadDeadline is for http.ResponseController.
func (r response) SetReadDeadline(at time.Time) error {
	if at.IsZero() || at.After(time.Now()) {
		return nil
	}
	return r.body.Close()
}

// NewRequest returns a request with a body: a string, bytes, or what is encoded as JSON.
// Header are names and values.
func NewRequest(ctx context.Context, t testing.TB, method, url string, body any, header ...string) *http.Request {
	t.Helper()
	var reader io.Reader
	switch body := body.(type) {
	case nil:
	case string:
		reader = strings.NewReader(body)
	case []byte:
		reader = bytes.NewReader(body)
	default:
		data, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		reader = bytes.NewReader(data)
	}
	req := httptest.NewRequestWithContext(ctx, method, url, reader)
	if method == http.MethodPatch {
		req.Header.Set("Content-Type", string(types.StrategicMergePatchType))
	} else if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return req
}

// Background calls a function and returns the channel of its result.
func Background[T any](call func() T) <-chan T {
	out := make(chan T, 1)
	go func() { out <- call() }()
	return out
}

// Classic returns a valid core/v1 Event without eventTime.
func Classic(name string, count int32) *corev1.Event {
	return &corev1.Event{
		TypeMeta:       metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		ObjectMeta:     metav1.ObjectMeta{Name: name, Namespace: "ns"},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "ns", Name: "web-0", UID: "pod-uid"},
		Reason:         "Started", Message: "container started", Type: corev1.EventTypeNormal,
		Source:         corev1.EventSource{Component: "kubelet", Host: "node-1"},
		FirstTimestamp: metav1.Unix(1_700_000_000, 0), LastTimestamp: metav1.Unix(1_700_000_000, 0),
		Count: count,
	}
}

// NewStyleJSON is a valid events.k8s.io/v1 Event, without its name.
const NewStyleJSON = `{"apiVersion":"events.k8s.io/v1","kind":"Event","metadata":{"name":%q},` +
	`"eventTime":"2026-01-02T03:04:05.000006Z","reportingController":"example.com/controller","reportingInstance":"c-1",` +
	`"action":"Binding","reason":"Scheduled","regarding":{"kind":"Pod","namespace":"ns","name":"web-0"},"note":"bound","type":"Normal"}`
