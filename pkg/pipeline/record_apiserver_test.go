package pipeline

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/test/testenv"
)

// k/k#133260: counts continue in the next process. k/k#27858: what is queued at the shutdown
// is written. The rights are those of most controllers.
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

// The same calls of client-go's broadcaster and ours store the same Events, except for
// names, times, and our annotations.
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

// announcingSink reports every write.
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

// comparable removes what may differ.
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

// k/k#127594, and client-go#1376 for the Node.
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
	b, r := recordTo(&typedcorev1.EventSinkImpl{Interface: clients.CoreV1().Events(namespace)})
	r.Event(podIn(namespace, "web-0"), "Normal", "Tested", "")
	r.Event(podIn("another", "web-0"), "Normal", "Tested", "")
	drain(t, b)
	totals := ledgers(b.stations)[0]
	if totals.Written() != 1 || totals.Dropped[occurrence.Invalid] != 1 {
		t.Errorf("ledger %+v", totals)
	}
}

// controller-runtime starts a sink for each recorder provider, with the same broadcaster.
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
	record() // without a sink
	start()
	record()
	drain(t, b)
	events := stored(t, namespace)
	if len(events) != 1 || events[0].Count != 3 {
		t.Errorf("stored %+v", events)
	}
}
