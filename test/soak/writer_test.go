package soak

import (
	"context"
	"fmt"
	runtimemetrics "runtime/metrics"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/ledger"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink"
	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/longrun"
	"github.com/eventd/eventd/test/metrics"
	"github.com/eventd/eventd/test/stored"
	"github.com/eventd/eventd/test/testenv"
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

// load records occurrences, of new series and of old ones, and counts them. It is for
// one goroutine at a time.
type load struct {
	recorder  record.EventRecorder
	namespace string
	series    int // but the hot ones
	recorded  counts
}

const hotSeries = 10

// everything records as a controller does: new series, if allowed, and old ones.
func (l *load) everything(newToo bool) {
	if newToo {
		l.record(fmt.Sprint("pod-", l.series))
		l.series++
	}
	l.record(fmt.Sprint("hot-", l.series%hotSeries))
	if newToo && l.series%4 == 0 {
		l.record(fmt.Sprint("pod-", l.series/2))
	}
}

func (l *load) record(name string) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: l.namespace, Name: name}}
	l.recorder.Event(pod, corev1.EventTypeNormal, "Tested", "it was tested by somebody who says so at some length")
	l.recorded[object{l.namespace, name}]++
}

// goOn calls everything at a rate until end is called. It records new series only
// while mayAdd is true.
func (l *load) goOn(perSecond float64, mayAdd func() bool) (end func()) {
	began, n := time.Now(), 0.0
	return await.Every(20*time.Millisecond, func(context.Context) {
		newToo := mayAdd()
		for ; n < perSecond*time.Since(began).Seconds(); n++ {
			l.everything(newToo)
		}
	})
}

// liveHeap is that as of the last collection.
func liveHeap() int64 {
	sample := []runtimemetrics.Sample{{Name: "/gc/heap/live:bytes"}}
	runtimemetrics.Read(sample)
	return int64(sample[0].Value.Uint64())
}

// deadline bounds all waits. It is not longer than a sink retries.
func deadline() time.Duration { return longrun.Either(10*time.Minute, 3*time.Minute) }

// bounded is for what is done when the test's own context may have ended.
func bounded(t *testing.T) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(t.Context()), deadline())
}

// object is what an occurrence is about. Each has one series.
type object struct{ namespace, name string }

func objectOf(e *corev1.Event) object { return object{e.Namespace, e.InvolvedObject.Name} }

// counts are of occurrences.
type counts = stored.Counts[object]

// wantStored checks that in the namespaces of what should be stored each series
// has one Event, with its count.
func wantStored(t *testing.T, cluster *testenv.ControlPlane, want counts) {
	t.Helper()
	listed := map[string]bool{}
	var events []corev1.Event
	for o := range want {
		if !listed[o.namespace] {
			listed[o.namespace] = true
			events = append(events, stored.List(t, cluster, o.namespace)...)
		}
	}
	stored.Want(t, want, events, objectOf)
}

// wantAllWritten checks that all that was recorded is written, that nothing is
// pending, and that the metrics agree with the ledger.
func wantAllWritten(t *testing.T, totals ledger.Totals, m metrics.Metrics) {
	t.Helper()
	if totals.Written() != totals.Recorded || totals.Pending() != 0 {
		t.Errorf("recorded %d, settled as %v, dropped %v", totals.Recorded, totals.Outcomes, totals.Dropped)
	}
	want := func(n int64, name string, labels ...string) {
		t.Helper()
		if got, ok := m.Lookup(name, labels...); !ok || got != float64(n) {
			t.Errorf("%s %v is %v, and in the ledger %d", name, labels, got, n)
		}
	}
	const settled = "eventd_occurrences_settled_total"
	want(totals.Recorded, "eventd_occurrences_recorded_total")
	want(0, "eventd_occurrences_pending")
	want(totals.Settled(), settled)
	for _, outcome := range occurrence.Outcomes {
		if outcome != occurrence.Dropped {
			want(totals.Outcomes[outcome], settled, "outcome="+string(outcome), "reason=")
		}
	}
	for _, reason := range occurrence.Reasons {
		want(totals.Dropped[reason], settled, "outcome=dropped", "reason="+string(reason))
	}
}
