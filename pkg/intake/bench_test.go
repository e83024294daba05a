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
	"k8s.io/apiserver/pkg/authorization/authorizer"
	clientscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/eventd/eventd/pkg/occurrence"
)

// BenchmarkHandler is what one report costs in the handler, without a connection: whoever reports is authenticated
// and authorized from memory, and the sink has answered before.
func BenchmarkHandler(b *testing.B) {
	o := DefaultOptions()
	stored := &corev1.Event{ObjectMeta: metav1.ObjectMeta{UID: "6f6f2a3e-8f53-4f0b-9b0e-2d3c0f4b8f6e", ResourceVersion: "1"}}
	o.Record = func(o *occurrence.Occurrence) {
		o.Settled(occurrence.Settlement{Outcome: occurrence.Merged, Object: stored})
	}
	allow := authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
		return authorizer.DecisionAllow, "", nil
	})
	handler := must(NewHandler(ServerOptions{Intake: must(New(o)), Authenticator: accepting("system:node:node-17"), Authorizer: allow}))
	encoded := map[string]func(*corev1.Event) []byte{
		runtime.ContentTypeJSON: func(e *corev1.Event) []byte { return must(json.Marshal(e)) },
		runtime.ContentTypeProtobuf: func(e *corev1.Event) []byte {
			encoder := clientscheme.Codecs.EncoderForVersion(protobuf.NewSerializer(clientscheme.Scheme, clientscheme.Scheme), schema.GroupVersion{Version: "v1"})
			return must(runtime.Encode(encoder, e))
		},
	}
	serve := func(b *testing.B, method, path, contentType string, body []byte) {
		b.Helper()
		req := httptest.NewRequest(method, path, bytes.NewReader(body))
		req.Header.Set("Content-Type", contentType)
		req.Header.Set("Accept", runtime.ContentTypeJSON)
		req.Header.Set("Authorization", "Bearer token")
		w, done := httptest.NewRecorder(), make(chan struct{})
		go func() { // as a server does: its stack has to grow
			defer close(done)
			handler.ServeHTTP(w, req)
		}()
		if <-done; w.Code >= http.StatusMultipleChoices {
			b.Fatalf("%d: %s", w.Code, w.Body)
		}
	}
	const path = "/api/v1/namespaces/shop/events"
	names := 0
	for contentType, encode := range encoded {
		b.Run("POST/"+contentType, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				names++
				serve(b, http.MethodPost, path, contentType, encode(backOff(fmt.Sprint("web-0.", names))))
			}
		})
	}
	b.Run("PATCH", func(b *testing.B) {
		b.ReportAllocs()
		serve(b, http.MethodPost, path, runtime.ContentTypeJSON, encoded[runtime.ContentTypeJSON](backOff("web-0.patched")))
		count := 1
		for b.Loop() {
			count++
			patch := fmt.Appendf(nil, `{"count":%d,"lastTimestamp":"2026-11-23T10:00:00Z"}`, count)
			serve(b, http.MethodPatch, path+"/web-0.patched", "application/strategic-merge-patch+json", patch)
		}
	})
}

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
