package pipeline

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink"
	"github.com/eventd/eventd/test/testenv"
)

func unlimitedClients(t *testing.T) *kubernetes.Clientset {
	config := rest.CopyConfig(testenv.Shared(t).Config())
	config.QPS = -1
	return kubernetes.NewForConfigOrDie(config)
}

// reported returns an occurrence of a client that counts by itself.
func reported(namespace, client, message string, total int64) *occurrence.Occurrence {
	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: namespace},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: "web-0", UID: "u", APIVersion: "v1"},
		Source:         source, Type: "Warning", Reason: "Failed", Message: message,
	}
	return &occurrence.Occurrence{Event: event, API: occurrence.CoreV1, Weight: 1, Client: client, Total: total}
}

// Each Event has one counter, though a client combines the group as well.
func TestClientCombinesTheGroupThatIsCombinedHere(t *testing.T) {
	namespace, clients := testenv.Shared(t).Namespace(t), unlimitedClients(t)
	p, err := New(t.Context(), DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	if err := p.StartSink(sink.NewClient(clients.CoreV1().RESTClient(), clients.EventsV1().RESTClient())); err != nil {
		t.Fatal(err)
	}
	const each = 40
	for i := range each {
		p.Record(reported(namespace, fmt.Sprint("single-", i), fmt.Sprint("message ", i), 1))
		p.Record(reported(namespace, "combined", identity.CombinedPrefix+fmt.Sprint("m", i), int64(i+1)))
		p.writer.sink.Flush(t.Context()) // so that there are many writes
	}
	drain(t, shutdownOf{p})
	var sum int64
	for _, e := range stored(t, namespace) {
		sum += countOf(&e)
	}
	if totals := p.Totals(); totals.Written() != 2*each || sum != 2*each {
		t.Errorf("recorded %d, settled as %v, stored %d", totals.Recorded, totals.Outcomes, sum)
	}
}

// An annotation that the apiserver refuses is lost, with all others of that write.
func TestBadAnnotationLosesNoOccurrence(t *testing.T) {
	namespace := testenv.Shared(t).Namespace(t)
	b, r := recordTo(&typedcorev1.EventSinkImpl{Interface: unlimitedClients(t).CoreV1().Events("")})
	const before, after = 5, 5
	for range before {
		r.AnnotatedEventf(podIn(namespace, "web-0"), map[string]string{"good": "x"}, "Normal", "Tested", "the same")
	}
	r.AnnotatedEventf(podIn(namespace, "web-0"), map[string]string{"not a key": "x"}, "Normal", "Tested", "the same")
	for range after {
		r.Event(podIn(namespace, "web-0"), "Normal", "Tested", "the same")
	}
	drain(t, b)
	events := stored(t, namespace)
	if len(events) != 1 || events[0].Count != before+1+after {
		t.Errorf("stored %+v", events)
	}
}

// Two sinks for one apiserver count once where their namespaces overlap.
func TestSinksOfDifferentScopeCountOnce(t *testing.T) {
	clients := unlimitedClients(t)
	one, other := testenv.Shared(t).Namespace(t), testenv.Shared(t).Namespace(t)
	b := NewRecordBroadcaster()
	b.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: clients.CoreV1().Events(one)})
	b.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: clients.CoreV1().Events("")})
	r := b.NewRecorder(scheme.Scheme, source)
	r.Event(podIn(one, "web-0"), "Normal", "Tested", "")
	r.Event(podIn(other, "web-0"), "Normal", "Tested", "")
	drain(t, b)
	for _, namespace := range []string{one, other} {
		if events := stored(t, namespace); len(events) != 1 || events[0].Count != 1 {
			t.Errorf("stored %+v", events)
		}
	}
}

// Subjects without tokens may fill the sink with writes that wait for hours. Other subjects
// are not affected.
func TestSpentBudgetsDoNotAffectOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memorySink{}
		o := DefaultOptions()
		o.Sink.MaxPendingSeries = 500
		b, r := recordTo(m, WithOptions(o))
		for object := range 20 {
			for reason := range 89 {
				r.Event(podIn("noisy", fmt.Sprint("web-", object)), "Normal", fmt.Sprint("Reason", reason), "")
			}
			time.Sleep(time.Second)
		}
		before := ledgers(b.stations)[0]
		if before.Dropped[occurrence.PendingFull] == 0 {
			t.Fatal("the sink is not full")
		}
		objects, _ := m.count()
		const quiet = 100
		for i := range quiet {
			r.Event(podIn("quiet", fmt.Sprint("web-", i)), []string{"Warning", "Normal"}[i%2], "Important", "")
		}
		synctest.Wait()
		if now, _ := m.count(); now != objects+quiet {
			t.Errorf("%d of %d first Events of others are stored", now-objects, quiet)
		}
		drain(t, b)
		if totals := ledgers(b.stations)[0]; totals.Pending() != 0 {
			t.Errorf("ledger %+v", totals)
		}
	})
}

// k/k#103918: the series of an object share the refill, however often one of them occurs.
func TestNoisySeriesLeavesTokensForItsSibling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memorySink{}
		b, r := recordTo(m)
		var rare int64
		for second := range 4 * 3600 {
			r.Event(podIn("ns", "web-0"), "Warning", "Noisy", "")
			if second%20 == 5 {
				r.Event(podIn("ns", "web-0"), "Warning", "Rare", "")
				rare++
			}
			time.Sleep(time.Second)
		}
		synctest.Wait()
		m.mu.Lock()
		for _, e := range m.events {
			if behind := rare - int64(e.Count); e.Reason == "Rare" && behind > 60 { // 20 minutes
				t.Errorf("of %d, %d are stored", rare, e.Count)
			}
		}
		m.mu.Unlock()
		drain(t, b)
	})
}

// A key function that ends its goroutine affects only its Event.
func TestKeyFunctionMayEndItsGoroutine(t *testing.T) {
	m := &memorySink{}
	o := DefaultOptions()
	o.Correlator.SubjectKey = func(e *corev1.Event) string {
		if e.Reason == "Bad" {
			runtime.Goexit()
		}
		return e.InvolvedObject.Name
	}
	b, r := recordTo(m, WithOptions(o))
	for i := range 10 {
		r.Event(podIn("ns", fmt.Sprint("web-", i)), "Normal", []string{"Good", "Bad"}[i%2], "")
	}
	drain(t, b)
	if totals := ledgers(b.stations)[0]; totals.Written() != 5 || totals.Dropped[occurrence.Malformed] != 5 || totals.Pending() != 0 {
		t.Errorf("ledger %+v", totals)
	}
}
