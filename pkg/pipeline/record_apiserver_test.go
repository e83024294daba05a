package pipeline

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/stored"
	"github.com/eventd/eventd/test/testenv"
)

// The same calls of client-go's broadcaster and ours store the same Events, except for
// names, times, and our annotations.
func TestStoresWhatClientGoStores(t *testing.T) {
	ours, theirs := testenv.Shared(t).Namespace(t), testenv.Shared(t).Namespace(t)
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
	const occurrences = 6
	b, r := recordTo(coreSink(adminClients(t)))
	call(r, ours)
	drain(t, b)

	c := record.NewBroadcaster()
	c.StartRecordingToSink(coreSink(adminClients(t)))
	call(c.NewRecorder(scheme.Scheme, source), theirs)
	await.Until(t, "client-go has written all", func() bool { return sumOf(eventsIn(t, theirs)) == occurrences })
	c.Shutdown()
	wantEqual(t, "stored Events", comparable(eventsIn(t, theirs)), comparable(eventsIn(t, ours)))
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
		if !e.EventTime.IsZero() {
			e.EventTime = metav1.NewMicroTime(time.Unix(1, 0))
		}
		e.InvolvedObject.Namespace = ""
		if e.Related != nil {
			e.Related.Namespace = ""
		}
	}
	slices.SortFunc(events, func(x, y corev1.Event) int { return strings.Compare(x.Reason, y.Reason) })
	return events
}

// k/k#127594, and client-go#1376 for the Node.
func TestEventsOfObjectsWithAnyNameAreStored(t *testing.T) {
	namespace := testenv.Shared(t).Namespace(t)
	b, classic := recordTo(coreSink(adminClients(t)))
	newStyle := b.NewEventsRecorder(scheme.Scheme, "not a/qualified/name")
	names := []string{"", "system:node:x", "UPPER_case", strings.Repeat("long", 100), "-.-", "a..b", "ünïcode", "a/b"}
	for _, name := range names {
		classic.Event(podIn(namespace, name), "Normal", "Tested", "")
		newStyle.Eventf(podIn(namespace, name), nil, "Normal", "", "", strings.Repeat("€", 1000))
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-" + namespace}}
	classic.Event(node, "Normal", "Tested", "")
	newStyle.Eventf(node, nil, "Normal", "Tested", "Testing", "")
	if totals := drain(t, b); totals.Written() != int64(2*len(names)+2) {
		t.Errorf("ledger %+v", totals)
	}
	if n := len(eventsIn(t, namespace)); n != 2*len(names) {
		t.Errorf("%d Events are stored", n)
	}
}

func TestClientForOneNamespaceRefusesTheOthersAtOnce(t *testing.T) {
	namespace := testenv.Shared(t).Namespace(t)
	b, r := recordTo(&typedcorev1.EventSinkImpl{Interface: adminClients(t).CoreV1().Events(namespace)})
	r.Event(podIn(namespace, "web-0"), "Normal", "Tested", "")
	r.Event(podIn("another", "web-0"), "Normal", "Tested", "")
	if totals := drain(t, b); totals.Written() != 1 || totals.Dropped[occurrence.Invalid] != 1 {
		t.Errorf("ledger %+v", totals)
	}
}

// controller-runtime starts a sink for each recorder provider, with the same broadcaster.
func TestSecondSinkForTheSameServerJoinsTheFirst(t *testing.T) {
	namespace := testenv.Shared(t).Namespace(t)
	b := NewRecordBroadcaster()
	start := func() watch.Interface { return b.StartRecordingToSink(coreSink(adminClients(t))) }
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
	wantOne(t, namespace, 3)
}

// wantOne checks that a namespace has one Event, with a count.
func wantOne(t *testing.T, namespace string, count int64) {
	t.Helper()
	if events := eventsIn(t, namespace); len(events) != 1 || stored.Count(&events[0]) != count {
		t.Errorf("stored %+v, want one Event with a count of %d", events, count)
	}
}

// An annotation that the apiserver refuses is lost, with all others of that write.
func TestBadAnnotationLosesNoOccurrence(t *testing.T) {
	namespace := testenv.Shared(t).Namespace(t)
	b, r := recordTo(coreSink(adminClients(t)))
	const before, after = 5, 5
	for range before {
		r.AnnotatedEventf(podIn(namespace, "web-0"), map[string]string{"good": "x"}, "Normal", "Tested", "the same")
	}
	r.AnnotatedEventf(podIn(namespace, "web-0"), map[string]string{"not a key": "x"}, "Normal", "Tested", "the same")
	for range after {
		r.Event(podIn(namespace, "web-0"), "Normal", "Tested", "the same")
	}
	drain(t, b)
	wantOne(t, namespace, before+1+after)
}

// Two sinks for one apiserver count once where their namespaces overlap.
func TestSinksOfDifferentScopeCountOnce(t *testing.T) {
	one, other := testenv.Shared(t).Namespace(t), testenv.Shared(t).Namespace(t)
	b, r := recordTo(&typedcorev1.EventSinkImpl{Interface: adminClients(t).CoreV1().Events(one)})
	b.StartRecordingToSink(coreSink(adminClients(t)))
	r.Event(podIn(one, "web-0"), "Normal", "Tested", "")
	r.Event(podIn(other, "web-0"), "Normal", "Tested", "")
	drain(t, b)
	wantOne(t, one, 1)
	wantOne(t, other, 1)
}
