package main

import (
	"net/http"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/eventd/eventd/internal/identity"
)

// No metric of eventd counts an Event that was written to the apiserver directly.
func TestEventsOfOthersAreNoDifference(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(metricsText))
	}))
	defer server.Close()
	all := &stored{informer: cache.NewSharedIndexInformer(&cache.ListWatch{}, &corev1.Event{}, 0, nil)}
	own, foreign := event("a", 7), event("b", 1)
	own.Annotations = map[string]string{identity.Annotation: "0123"}
	for _, e := range []*corev1.Event{own, foreign} {
		if err := all.informer.GetStore().Add(e); err != nil {
			t.Fatal(err)
		}
	}
	if err := compare(t.Context(), meters{replicas: []*rest.Config{{Host: server.URL}}, delivery: &delivery{}}, all); err != nil {
		t.Error(err)
	}
	if len(all.events()) != 2 {
		t.Error("an Event of others is not shown")
	}
}
