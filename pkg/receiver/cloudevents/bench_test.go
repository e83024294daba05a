package cloudevents_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	configv1alpha1 "github.com/eventd/eventd/pkg/config/v1alpha1"
	"github.com/eventd/eventd/pkg/receiver/cloudevents"
	"github.com/eventd/eventd/test/receivertest"
)

// BenchmarkSend encodes and sends batches of 512 over loopback to a server that discards them.
func BenchmarkSend(b *testing.B) {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	defer server.Close()
	for name, batched := range map[string]bool{"batched": true, "one by one": false} {
		b.Run(name, func(b *testing.B) {
			r, err := cloudevents.New(&configv1alpha1.CloudEvents{URL: server.URL, Batched: batched, Connection: configv1alpha1.Connection{Insecure: true}}, time.Minute)
			if err != nil {
				b.Fatal(err)
			}
			defer r.Close()
			receivertest.MeasureSend(b, r, receivertest.Records(512))
		})
	}
}
