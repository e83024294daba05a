package cloudevents

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	configv1alpha1 "github.com/eventd/eventd/pkg/config/v1alpha1"
	"github.com/eventd/eventd/pkg/receiver/internal/receivertest"
)

// One large Event must not cost its memory for as long as the receiver lasts.
func TestMemoryOfALargeRequestIsReleased(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	r, err := New(&configv1alpha1.CloudEvents{URL: server.URL, Batched: true, Connection: configv1alpha1.Connection{Insecure: true}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	batch := receivertest.Records(2)
	batch[1].Event.Message = strings.Repeat("m", 4*maxBatchBytes)
	if _, err := r.Send(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	if n := cap(r.body); n == 0 || n > 2*maxBatchBytes {
		t.Errorf("the receiver holds %d bytes", n)
	}
}
