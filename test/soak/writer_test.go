package soak

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/ledger"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink"
	"github.com/eventd/eventd/test/metrics"
)

// writer is a sink with its ledger and metrics. It is for one goroutine.
type writer struct {
	*sink.Sink
	t        *testing.T
	ledger   *ledger.Ledger
	registry *prometheus.Registry
	recorded counts
}

func newWriter(t *testing.T, config *rest.Config, o sink.Options) *writer {
	w := &writer{t: t, ledger: ledger.New(), registry: prometheus.NewRegistry(), recorded: counts{}}
	w.registry.MustRegister(w.ledger)
	o.Registerer = w.registry
	client, err := sink.NewClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if w.Sink, err = sink.New(t.Context(), client, w.ledger, o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // what a test that failed has left
		ctx, cancel := bounded(t)
		defer cancel()
		w.Close(ctx)
	})
	return w
}

// record adds an occurrence about an object, whose write may be delayed.
func (w *writer) record(namespace, name string, api occurrence.API, delay time.Duration, settled func(occurrence.Settlement)) {
	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: namespace},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: name},
		Reason:         "Tested", Message: "it was", Type: corev1.EventTypeNormal,
	}
	now := time.Now()
	if api == occurrence.EventsV1 {
		event.EventTime = metav1.NewMicroTime(now)
		event.ReportingController, event.ReportingInstance, event.Action = "example.com/soak", "soak-0", "Testing"
	} else {
		event.FirstTimestamp, event.LastTimestamp = metav1.NewTime(now), metav1.NewTime(now)
	}
	o := &occurrence.Occurrence{Event: event, API: api, Weight: 1, Recorded: now, Settled: settled}
	w.recorded[object{namespace, name}]++
	w.ledger.Record(o)
	w.Add(o, occurrence.Target{Key: occurrence.KeyOf(identity.Of(event)), Event: event, Name: name}, delay)
}

// finish closes the sink, and checks that it has written everything.
func (w *writer) finish() ledger.Totals {
	w.t.Helper()
	ctx, cancel := bounded(w.t)
	defer cancel()
	if left := w.Close(ctx); left != (sink.Pending{}) {
		w.t.Errorf("not written within %v: %+v", deadline(), left)
	}
	totals := w.ledger.Totals()
	wantAllWritten(w.t, totals, metrics.Gather(w.t, w.registry))
	return totals
}
