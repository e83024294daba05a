package pipeline

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/test/testenv"
)

// k/k#133260: deduplication outlives the process; and k/k#27858: what is queued
// at the shutdown is written. All that with the rights of most controllers, and
// with the client for all namespaces that they pass.
func TestNextProcessContinuesTheCountWithTheRightsToCreateAndPatch(t *testing.T) {
	namespace := testenv.Shared(t).Namespace(t)
	clients := writerClients(t, namespace, "")
	for range 3 {
		b := NewRecordBroadcaster(WithContext(t.Context()))
		b.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: clients.CoreV1().Events("")})
		classic := b.NewRecorder(scheme.Scheme, source)
		newStyle := b.NewEventsRecorder(scheme.Scheme, "example.com/controller")
		for range 5 {
			classic.Event(podIn(namespace, "web-0"), "Normal", "Tested", "classic")
			newStyle.Eventf(podIn(namespace, "web-0"), podIn(namespace, "web-1"), "Normal", "Tested", "Testing", "new style")
		}
		drain(t, b)
		for _, totals := range ledgers(b.stations) {
			if totals.Written() != 10 || totals.Pending() != 0 {
				t.Errorf("ledger %+v", totals)
			}
		}
	}
	events := stored(t, namespace)
	if len(events) != 2 || countOf(&events[0]) != 15 || countOf(&events[1]) != 15 {
		t.Errorf("stored %+v", events)
	}
	for _, e := range events {
		if newStyle := !e.EventTime.IsZero(); newStyle != (e.Related != nil) || newStyle != (e.Action == "Testing") {
			t.Errorf("stored %+v", e)
		}
	}
}

// The same calls through client-go's broadcaster and ours leave the same Events,
// but for names, times, and annotations of our own.
func TestStoresWhatClientGoStores(t *testing.T) {
	shared := testenv.Shared(t)
	clients := kubernetes.NewForConfigOrDie(shared.Config())
	ours, theirs := shared.Namespace(t), shared.Namespace(t)
	call := func(r record.EventRecorderLogger, namespace string) {
		for range 3 {
			r.Event(podIn(namespace, "web-0"), "Normal", "Pulled", "image pulled")
		}
		r.Eventf(podIn(namespace, "web-0"), "Warning", "BackOff", "restart %d of %s", 7, "app")
		r.AnnotatedEventf(podIn(namespace, "web-1"), map[string]string{"example.com/a": "b"}, "Normal", "Annotated", "%d%%", 50)
		r.WithLogger(klog.Background()).Event(&corev1.ObjectReference{
			APIVersion: "v1", Kind: "Pod", Namespace: namespace, Name: "web-2", FieldPath: "spec.containers{app}", ResourceVersion: "7",
		}, "Normal", "ByReference", "")
		r.Event(podIn(namespace, "web-3"), "Unusual", "NoSuchType", "not recorded")
		r.Event(nil, "Normal", "NoObject", "not recorded")
	}
	const writes = 6 // client-go makes one for each

	b := NewRecordBroadcaster()
	b.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: clients.CoreV1().Events("")})
	call(b.NewRecorder(scheme.Scheme, source), ours)
	drain(t, b)

	written := make(chan struct{}, writes)
	c := record.NewBroadcaster()
	c.StartRecordingToSink(&announcingSink{EventSink: &typedcorev1.EventSinkImpl{Interface: clients.CoreV1().Events("")}, written: written})
	call(c.NewRecorder(scheme.Scheme, source), theirs)
	for range writes {
		<-written
	}
	c.Shutdown()

	wantEqual(t, "stored Events", comparable(stored(t, theirs)), comparable(stored(t, ours)))
}

// announcingSink tells of every write.
type announcingSink struct {
	record.EventSink
	written chan struct{}
}

func (a *announcingSink) Create(event *corev1.Event) (*corev1.Event, error) {
	defer func() { a.written <- struct{}{} }()
	return a.EventSink.Create(event)
}

func (a *announcingSink) Patch(event *corev1.Event, patch []byte) (*corev1.Event, error) {
	defer func() { a.written <- struct{}{} }()
	return a.EventSink.Patch(event, patch)
}

// comparable leaves out what must differ.
func comparable(events []corev1.Event) []corev1.Event {
	for i := range events {
		e := &events[i]
		var annotations map[string]string
		for k, v := range e.Annotations {
			if !strings.HasPrefix(k, identity.AnnotationPrefix) {
				annotations = map[string]string{k: v}
			}
		}
		e.ObjectMeta = metav1.ObjectMeta{Annotations: annotations}
		e.FirstTimestamp, e.LastTimestamp = metav1.Time{}, metav1.Time{}
		e.InvolvedObject.Namespace = ""
	}
	slices.SortFunc(events, func(x, y corev1.Event) int { return strings.Compare(x.Reason, y.Reason) })
	return events
}

// k/k#127594, and client-go#1376 for the Node: Events of objects with any name
// are stored.
func TestEventsOfObjectsWithAnyNameAreStored(t *testing.T) {
	namespace := testenv.Shared(t).Namespace(t)
	clients := kubernetes.NewForConfigOrDie(testenv.Shared(t).Config())
	b := NewRecordBroadcaster()
	b.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: clients.CoreV1().Events("")})
	classic, newStyle := b.NewRecorder(scheme.Scheme, source), b.NewEventsRecorder(scheme.Scheme, "not a/qualified/name")
	names := []string{"", "system:node:x", "UPPER_case", strings.Repeat("long", 100), "-.-", "a..b", "ünïcode", "a/b"}
	for _, name := range names {
		classic.Event(podIn(namespace, name), "Normal", "Tested", "")
		newStyle.Eventf(podIn(namespace, name), nil, "Normal", "", "", strings.Repeat("€", 1000))
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-" + namespace}}
	classic.Event(node, "Normal", "Tested", "")
	newStyle.Eventf(node, nil, "Normal", "Tested", "Testing", "")
	drain(t, b)
	if n := len(stored(t, namespace)); n != 2*len(names) {
		t.Errorf("%d Events are stored", n)
	}
	for _, totals := range ledgers(b.stations) {
		if totals.Written() != int64(2*len(names)+2) {
			t.Errorf("ledger %+v", totals)
		}
	}
}

func TestClientForOneNamespaceRefusesTheOthersAtOnce(t *testing.T) {
	namespace := testenv.Shared(t).Namespace(t)
	clients := kubernetes.NewForConfigOrDie(testenv.Shared(t).Config())
	b := NewRecordBroadcaster()
	b.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: clients.CoreV1().Events(namespace)})
	r := b.NewRecorder(scheme.Scheme, source)
	r.Event(podIn(namespace, "web-0"), "Normal", "Tested", "")
	r.Event(podIn("another", "web-0"), "Normal", "Tested", "")
	drain(t, b)
	totals := ledgers(b.stations)[0]
	if totals.Written() != 1 || totals.Dropped[occurrence.Invalid] != 1 {
		t.Errorf("ledger %+v", totals)
	}
}

// controller-runtime starts a sink of its own for each recorder provider, all
// with the same broadcaster.
func TestSecondSinkForTheSameServerJoinsTheFirst(t *testing.T) {
	namespace := testenv.Shared(t).Namespace(t)
	b := NewRecordBroadcaster()
	start := func() watch.Interface {
		clients := kubernetes.NewForConfigOrDie(testenv.Shared(t).Config())
		return b.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: clients.CoreV1().Events("")})
	}
	first, second := start(), start()
	r := b.NewRecorder(scheme.Scheme, source)
	record := func() { r.Event(podIn(namespace, "web-0"), "Normal", "Tested", "") }
	record()
	first.Stop()
	first.Stop()
	record()
	second.Stop()
	<-first.ResultChan()
	record() // nobody would write it
	start()
	record()
	drain(t, b)
	events := stored(t, namespace)
	if len(events) != 1 || events[0].Count != 3 {
		t.Errorf("stored %+v", events)
	}
}

// Unit tests of controllers use client-go's fake client.
func TestFakeClientIsASinkLikeAnyOther(t *testing.T) {
	clients := fake.NewClientset()
	b := NewRecordBroadcaster()
	b.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: clients.CoreV1().Events("")})
	r := b.NewRecorder(scheme.Scheme, source)
	for range 3 {
		r.Event(podIn("ns", "web-0"), "Normal", "Tested", "")
	}
	drain(t, b)
	list, err := clients.CoreV1().Events("ns").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 || list.Items[0].Count != 3 {
		t.Errorf("stored %+v: %v", list, err)
	}
}

// k/k#134993: Events of one object at the same instant have names of their own,
// and watchers see those that are stored.
func TestWatchersSeeTheNamesThatAreStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // where the clock stands still
		m := newMemoryServer(0, faults{})
		const distinct = 100
		b := NewRecordBroadcaster(WithCorrelatorOptions(record.CorrelatorOptions{BurstSize: 2 * distinct, MaxEvents: 2 * distinct}))
		b.StartRecordingToSink(&passing{m})
		seen := make(map[string]string)
		b.StartEventWatcher(func(e *corev1.Event) {
			seen[e.Name] = e.Message
			e.Annotations["k"] = "changed by the handler"
		})
		r := b.NewRecorder(scheme.Scheme, source)
		for i := range distinct {
			r.AnnotatedEventf(podIn("ns", "web-0"), map[string]string{"k": "v"}, "Normal", "Tested", "message %d", i)
		}
		drain(t, b)
		if len(seen) != distinct || len(m.events) != distinct {
			t.Fatalf("%d seen, %d stored", len(seen), len(m.events))
		}
		for name, e := range m.events {
			if seen[name] != e.Message || e.Annotations["k"] != "v" {
				t.Errorf("stored %q, seen %q", e.Message, seen[name])
			}
		}
	})
}

func TestLogging(t *testing.T) {
	b := NewRecordBroadcaster()
	var lines []string
	w := b.StartLogging(func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) })
	b.StartStructuredLogging(10)
	r := b.NewRecorder(scheme.Scheme, source)
	r.Event(podIn("ns", "web-0"), "Warning", "BackOff", "again")
	w.Stop()
	for range w.ResultChan() {
		t.Error("something came through the channel")
	}
	r.Event(podIn("ns", "web-0"), "Warning", "BackOff", "after the stop")
	drain(t, b)
	if len(lines) != 1 || !strings.HasSuffix(lines[0], "type: 'Warning' reason: 'BackOff' again") {
		t.Errorf("logged %q", lines)
	}
}

// k/k#68393: what is lost is counted, at every sink by itself, and sinks come
// and go.
func TestEverySinkHasItsOwnLedgerAndMetrics(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	o := DefaultOptions()
	o.Registerer = registry
	b := NewRecordBroadcaster(WithOptions(o))
	other := NewEventsBroadcaster(nil, WithOptions(o))
	first, second := &memorySink{}, &memorySink{}
	b.StartRecordingToSink(first)
	stop := b.StartRecordingToSink(second)
	b.StartEventWatcher(func(*corev1.Event) { panic("handler") })
	r := b.NewRecorder(scheme.Scheme, source)
	r.Event(podIn("ns", "web-0"), "Normal", "Tested", "")
	r.Event(nil, "Normal", "Tested", "")
	stop.Stop()
	<-stop.ResultChan()
	r.Event(podIn("ns", "web-0"), "Normal", "Tested", "")
	drain(t, b)
	drain(t, other)
	for sink, want := range map[*memorySink]int64{first: 2, second: 1} {
		if objects, sum := sink.count(); objects != 1 || sum != want {
			t.Errorf("%d Events with a count of %d are stored, want %d", objects, sum, want)
		}
	}
	eventually(t, "the metrics of the stopped sink go", func() bool {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, family := range families {
			for _, metric := range family.GetMetric() {
				for _, label := range metric.GetLabel() {
					if label.GetName() == "sink" && label.GetValue() == "2" {
						return false
					}
				}
			}
		}
		return true
	})
	want := `
# HELP eventd_broadcaster_panics_total Panics of a subscriber's handler.
# TYPE eventd_broadcaster_panics_total counter
eventd_broadcaster_panics_total{broadcaster="record",sink="",subscriber="watcher-1"} 2
eventd_broadcaster_panics_total{broadcaster="record",sink="1",subscriber="sink"} 0
# HELP eventd_occurrences_recorded_total Occurrences recorded.
# TYPE eventd_occurrences_recorded_total counter
eventd_occurrences_recorded_total{broadcaster="events",sink=""} 0
eventd_occurrences_recorded_total{broadcaster="record",sink=""} 0
eventd_occurrences_recorded_total{broadcaster="record",sink="1"} 3
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "eventd_broadcaster_panics_total", "eventd_occurrences_recorded_total"); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("metrics: %v %v", problems, err)
	}
}

// k/k#108518, controller-runtime#1367: recording, starting, stopping and shutting
// down at the same time neither panics nor leaks, and everything is counted.
func TestEverythingAtOnce(t *testing.T) {
	b := NewRecordBroadcaster()
	m := &memorySink{}
	b.StartRecordingToSink(m)
	var all sync.WaitGroup
	for i := range 4 {
		r := b.NewRecorder(scheme.Scheme, source)
		all.Go(func() {
			for j := range 500 {
				r.Eventf(podIn("ns", fmt.Sprint("web-", j%10)), "Normal", "Tested", "%d", i)
			}
		})
		all.Go(func() {
			for range 20 {
				w := b.StartEventWatcher(func(*corev1.Event) {})
				s := b.StartRecordingToSink(&memorySink{})
				w.Stop()
				s.Stop()
				s.Stop()
			}
		})
	}
	all.Go(b.Shutdown)
	all.Go(func() { drain(t, b) })
	all.Wait()
	b.Shutdown()
	sum := b.stations.unsunk.Totals().Recorded
	for _, totals := range ledgers(b.stations) {
		if totals.Pending() != 0 {
			t.Errorf("ledger %+v", totals)
		}
		sum += totals.Recorded
	}
	if sum < 2000 {
		t.Errorf("%d of 2000 are counted", sum)
	}
}

func TestBeforeTheStartAndAfterTheShutdown(t *testing.T) {
	b := NewRecordBroadcaster(WithCorrelatorOptions(record.CorrelatorOptions{LRUCacheSize: 10, MaxIntervalInSeconds: 5}))
	if got := b.stations.options.Correlator; got.CacheSize != 10 || got.Interval != 5*time.Second {
		t.Errorf("correlator options %+v", got)
	}
	r := b.NewRecorder(scheme.Scheme, source)
	r.Event(podIn("ns", "web-0"), "Normal", "Early", "")
	var nobody *typedcorev1.EventSinkImpl
	for _, sink := range []record.EventSink{nil, nobody, &typedcorev1.EventSinkImpl{}} {
		if _, open := <-b.StartRecordingToSink(sink).ResultChan(); open {
			t.Error("a sink that is none was started")
		}
	}
	b.Shutdown()
	r.Event(podIn("ns", "web-0"), "Normal", "Late", "")
	for _, w := range []interface{ Stop() }{b.StartRecordingToSink(&memorySink{}), b.StartEventWatcher(nil), b.StartLogging(nil), b.StartStructuredLogging(0)} {
		w.Stop()
	}
	totals := b.stations.unsunk.Totals()
	if totals.Dropped[occurrence.NoSink] != 1 || totals.Dropped[occurrence.Shutdown] != 1 || totals.Pending() != 0 {
		t.Errorf("ledger %+v", totals)
	}
}

func TestTheEndOfTheContextShutsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		m := &memorySink{}
		b := NewRecordBroadcaster(WithContext(ctx))
		w := b.StartRecordingToSink(m)
		b.NewRecorder(scheme.Scheme, source).Event(podIn("ns", "web-0"), "Normal", "Tested", "")
		cancel()
		<-w.ResultChan()
		if objects, _ := m.count(); objects != 1 {
			t.Errorf("%d Events are stored", objects)
		}
	})
}

func TestHandlerThatHangsIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewRecordBroadcaster()
		release := make(chan struct{})
		b.StartEventWatcher(func(*corev1.Event) { <-release })
		b.NewRecorder(scheme.Scheme, source).Event(podIn("ns", "web-0"), "Normal", "Tested", "")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := b.ShutdownWithContext(ctx)
		if undelivered, ok := err.(*UndeliveredError); !ok || undelivered.Watchers != 1 || undelivered.Cause == nil {
			t.Errorf("error %v", err)
		}
		close(release)
		b.Shutdown()
	})
}

// A runtime.Object that panics when it is looked at.
type brittle struct{ runtime.Object }

func TestRecordingNeverPanics(t *testing.T) {
	b := NewRecordBroadcaster()
	b.NewRecorder(nil, source).Event(brittle{}, "Normal", "Tested", "")
	b.NewEventsRecorder(nil, "").Eventf(brittle{}, brittle{}, "Normal", "", "", "%s")
	b.Shutdown()
	if totals := b.stations.unsunk.Totals(); totals.Dropped[occurrence.Malformed] != 2 {
		t.Errorf("ledger %+v", totals)
	}
}
