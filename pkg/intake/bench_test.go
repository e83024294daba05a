package intake

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	clientscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/eventd/eventd/pkg/occurrence"
)

// BenchmarkHandler is what one report costs in the handler, without a connection: whoever reports is authenticated
// and authorized from memory, and the sink has answered before.
func BenchmarkHandler(b *testing.B) { benchmarkHandler(b, (*served).by) }

// BenchmarkHandlerOnNewGoroutines serves each report on a new goroutine, as a server does. So it includes the growth of
// its stack, and the benchmark's own wait for it.
func BenchmarkHandlerOnNewGoroutines(b *testing.B) { benchmarkHandler(b, (*served).byNewGoroutine) }

func benchmarkHandler(b *testing.B, by func(*served, testing.TB, http.Handler)) {
	handler := newBenchHandler()
	// A request and its response are the server's: they are made while the timer is stopped.
	serve := func(b *testing.B, method, contentType string, next func(i int) (path string, body []byte)) {
		b.ReportAllocs()
		var calls []*served
		for i := range b.N {
			if i%chunk == 0 {
				b.StopTimer()
				calls = calls[:0]
				for j := range min(chunk, b.N-i) {
					path, body := next(i + j)
					calls = append(calls, newServed(method, path, contentType, body))
				}
				b.StartTimer()
			}
			by(calls[i%chunk], b, handler)
		}
	}
	names := 0
	for contentType, encode := range encoded {
		b.Run("POST/"+contentType, func(b *testing.B) {
			serve(b, http.MethodPost, contentType, func(int) (string, []byte) {
				names++
				return reportPath, encode(backOff(fmt.Sprint("web-0.", names)))
			})
		})
	}
	b.Run("PATCH", func(b *testing.B) {
		names++
		name := fmt.Sprint("web-0.", names)
		newServed(http.MethodPost, reportPath, runtime.ContentTypeJSON, encoded[runtime.ContentTypeJSON](backOff(name))).by(b, handler)
		serve(b, http.MethodPatch, string(types.StrategicMergePatchType), func(i int) (string, []byte) {
			return reportPath + "/" + name, fmt.Appendf(nil, `{"count":%d,"lastTimestamp":"2026-11-23T10:00:00Z"}`, i+2)
		})
	})
}

const reportPath = "/api/v1/namespaces/shop/events"

func newBenchHandler() http.Handler {
	o := DefaultOptions()
	stored := &corev1.Event{ObjectMeta: metav1.ObjectMeta{UID: "6f6f2a3e-8f53-4f0b-9b0e-2d3c0f4b8f6e", ResourceVersion: "1"}}
	o.Record = func(o *occurrence.Occurrence) {
		o.Settled(occurrence.Settlement{Outcome: occurrence.Merged, Object: stored})
	}
	allow := authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
		return authorizer.DecisionAllow, "", nil
	})
	return must(NewHandler(ServerOptions{Intake: must(New(o)), Authenticator: accepting("system:node:node-17"), Authorizer: allow}))
}

// encoded are the encodings of reports, by their content type.
var encoded = map[string]func(*corev1.Event) []byte{
	runtime.ContentTypeJSON: func(e *corev1.Event) []byte { return must(json.Marshal(e)) },
	runtime.ContentTypeProtobuf: func(e *corev1.Event) []byte {
		encoder := clientscheme.Codecs.EncoderForVersion(protobuf.NewSerializer(clientscheme.Scheme, clientscheme.Scheme), schema.GroupVersion{Version: "v1"})
		return must(runtime.Encode(encoder, e))
	},
}

// chunk is how many requests are made at once.
const chunk = 512

// served is a request that a server has read, and its response.
type served struct {
	req    *http.Request
	header http.Header
	code   int
}

func newServed(method, path, contentType string, body []byte) *served {
	req := httptest.NewRequest(method, path, bytes.NewReader(body))
	req.Header.Set("Content-Type", contentType)
	req.Header.Set("Accept", runtime.ContentTypeJSON)
	req.Header.Set("Authorization", "Bearer token")
	return &served{req: req, header: http.Header{}}
}

// by serves the request on this goroutine.
func (s *served) by(t testing.TB, handler http.Handler) {
	handler.ServeHTTP(s, s.req)
	s.wantSuccess(t)
}

// byNewGoroutine serves it on another one.
func (s *served) byNewGoroutine(t testing.TB, handler http.Handler) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		handler.ServeHTTP(s, s.req)
	}()
	<-done
	s.wantSuccess(t)
}

func (s *served) wantSuccess(t testing.TB) {
	if s.code == 0 || s.code >= http.StatusMultipleChoices {
		t.Fatalf("answered %d", s.code)
	}
}

// SetReadDeadline is for http.ResponseController.
func (s *served) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline is for http.ResponseController.
func (s *served) SetWriteDeadline(time.Time) error { return nil }

func (s *served) Header() http.Header            { return s.header }
func (s *served) WriteHeader(code int)           { s.code = code }
func (s *served) Write(body []byte) (int, error) { return len(body), nil }

// backOff is an Event as a kubelet posts it.
func backOff(name string) *corev1.Event {
	at := metav1.NewTime(time.Date(2026, 11, 23, 10, 0, 0, 0, time.UTC))
	return &corev1.Event{
		TypeMeta:       metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		ObjectMeta:     metav1.ObjectMeta{Namespace: "shop", Name: name},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "shop", Name: "web-0", UID: "2d3c0f4b-8f53-4f0b-9b0e-6f6f2a3e8f6e", ResourceVersion: "4711", FieldPath: "spec.containers{web}"},
		Reason:         "BackOff",
		Message:        "Back-off restarting failed container web in pod web-0_shop(2d3c0f4b-8f53-4f0b-9b0e-6f6f2a3e8f6e)",
		Source:         corev1.EventSource{Component: "kubelet", Host: "node-17"},
		Type:           corev1.EventTypeWarning,
		FirstTimestamp: at, LastTimestamp: at, Count: 1,
		ReportingController: "kubelet", ReportingInstance: "node-17",
	}
}
