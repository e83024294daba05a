package pipeline

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"

	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/testenv"
)

func startEvents(t *testing.T, b *EventsBroadcaster) {
	t.Helper()
	if err := b.StartRecordingToSinkWithContext(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// eventsTo returns a broadcaster that writes to a sink, and a recorder.
func eventsTo(t *testing.T, to events.EventSink, opts ...BroadcasterOption) (*EventsBroadcaster, events.EventRecorderLogger) {
	t.Helper()
	b := NewEventsBroadcaster(to, opts...)
	startEvents(t, b)
	return b, b.NewRecorder(scheme.Scheme, "example.com/controller")
}

// k/k#119376: counts are stored within seconds, not after half an hour. k/k#112365: other
// notes are not discarded. controller-runtime#3262: the action may be empty. The rights are
// those of most controllers.
func TestSeriesAreStoredWithTheirCountsAndNotes(t *testing.T) {
	namespace := testenv.Shared(t).Namespace(t)
	clients := writerClients(t, namespace, "events.k8s.io")
	b, r := eventsTo(t, &events.EventSinkImpl{Interface: clients.EventsV1()})
	pod, related := podIn(namespace, "web-0"), podIn(namespace, "web-1")
	for range 5 {
		r.Eventf(pod, related, "Normal", "Scheduled", "Binding", "to %s", "node-1")
		r.Eventf(pod, related, "Normal", "Scheduled", "", "to %s", "node-2")
	}
	await.Until(t, "the counts are stored", func() bool { return sumOf(eventsIn(t, namespace)) == 10 })
	drain(t, b)
	for _, e := range eventsIn(t, namespace) {
		action := "Binding"
		if e.Message == "to node-2" {
			action = "Scheduled"
		}
		if e.Action != action || e.Related == nil || e.Related.Name != "web-1" || e.Series.Count != 5 || e.ReportingController != "example.com/controller" {
			t.Errorf("stored %+v", e)
		}
	}
}

// k/k#98715, controller-runtime#3511: fields that are too long are cut.
func TestNewStyleRepairsSatisfyTheApiserver(t *testing.T) {
	namespace := testenv.Shared(t).Namespace(t)
	b, _ := eventsTo(t, &events.EventSinkImpl{Interface: adminClients(t).EventsV1()})
	long := strings.Repeat("€", 1000)
	controllers := []string{"kubelet", "", "two words", strings.Repeat("x", 200), "example.com/" + long, "a/b/c"}
	for _, controller := range controllers {
		r := b.NewRecorder(scheme.Scheme, controller).WithLogger(klog.Background())
		r.Eventf(podIn(namespace, "web-0"), nil, "Warning", long, long, "%s", long)
		r.Eventf(podIn(namespace, controller), nil, "Warning", "", "", "\xff\xfe")
	}
	if totals := drain(t, b); totals.Written() != int64(2*len(controllers)) {
		t.Errorf("ledger %+v", totals)
	}
}

// The same calls of client-go's broadcaster and ours store the same Events, except for
// names, times, and our annotations.
func TestStoresWhatClientGosNewBroadcasterStores(t *testing.T) {
	ours, theirs := testenv.Shared(t).Namespace(t), testenv.Shared(t).Namespace(t)
	sink := &events.EventSinkImpl{Interface: adminClients(t).EventsV1()}
	call := func(r events.EventRecorderLogger, namespace string) {
		r.Eventf(podIn(namespace, "web-0"), nil, "Normal", "Pulled", "Pulling", "image %q", "app")
		r.WithLogger(klog.Background()).Eventf(podIn(namespace, "web-0"), podIn(namespace, "web-1"), "Warning", "Preempted", "Preempting", "by")
		r.Eventf(podIn(namespace, "web-2"), nil, "Unusual", "NoSuchType", "A", "not recorded")
	}
	b, r := eventsTo(t, sink)
	call(r, ours)
	drain(t, b)

	ctx, cancel := context.WithCancel(t.Context())
	c := events.NewBroadcaster(sink)
	if err := c.StartRecordingToSinkWithContext(ctx); err != nil {
		t.Fatal(err)
	}
	call(c.NewRecorder(scheme.Scheme, "example.com/controller"), theirs)
	await.Until(t, "client-go has written both", func() bool { return len(eventsIn(t, theirs)) == 2 })
	cancel()
	c.Shutdown()
	wantEqual(t, "stored Events", comparable(eventsIn(t, theirs)), comparable(eventsIn(t, ours)))
}

func TestCustomEventsSinkGetsWholeEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &newStyleSink{}
		b, r := eventsTo(t, m)
		for range 3 {
			r.Eventf(podIn("ns", "web-0"), nil, "Normal", "Tested", "Testing", "note")
			synctest.Wait()
		}
		drain(t, b)
		m.want(t, 1, 3)
		for name, e := range m.events {
			if e.Series == nil || e.Message != "note" || e.InvolvedObject.Name != "web-0" || e.Name != name {
				t.Errorf("stored %+v", e)
			}
		}
	})
}

func TestRecordingToTheSinkCanBeStoppedAndStartedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &newStyleSink{}
		b := NewEventsBroadcaster(m)
		r := b.NewRecorder(scheme.Scheme, "controller")
		record := func(i int) {
			r.Eventf(podIn("ns", fmt.Sprint("web-", i)), nil, "Normal", "Tested", "Testing", "note")
			synctest.Wait()
		}
		stop := make(chan struct{})
		record(0) // without a sink
		b.StartRecordingToSink(stop)
		if err := b.StartRecordingToSinkWithContext(t.Context()); err == nil {
			t.Error("it was started twice")
		}
		record(1)
		close(stop)
		synctest.Wait()
		record(2) // without a sink
		startEvents(t, b)
		record(3)
		drain(t, b)
		record(4)
		b.Shutdown()
		m.want(t, 2, 2)
		if totals := b.stages.noSink.Totals(); totals.Dropped[occurrence.NoSink] != 2 {
			t.Errorf("ledger %+v", totals)
		}
		if err := b.StartRecordingToSinkWithContext(t.Context()); err == nil {
			t.Error("it was started after the shutdown")
		}
		if _, err := b.StartEventWatcher(func(runtime.Object) {}); err == nil {
			t.Error("a watcher was started after the shutdown")
		}
	})
}

func TestEventsWatchersAndLogging(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &newStyleSink{}
		b, r := eventsTo(t, m)
		var seen []string
		stop, err := b.StartEventWatcher(func(object runtime.Object) { seen = append(seen, object.(*eventsv1.Event).Name) })
		if err != nil {
			t.Fatal(err)
		}
		stopLogging := b.StartStructuredLogging(10)
		r.Eventf(podIn("ns", "web-0"), nil, "Normal", "Tested", "Testing", "note")
		stop()
		stopLogging()
		synctest.Wait()
		drain(t, b)
		if len(seen) != 1 || m.events[seen[0]] == nil {
			t.Errorf("seen %v, stored %v", seen, m.events)
		}
		b.StartStructuredLogging(0)()
	})
}

// Watchers of either kind of broadcaster share the Event, as those of client-go do. The sink has its
// own: a handler that changes the Event anyway changes nothing that is stored.
func TestWatchersShareTheEventAndTheSinkHasItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		newStyle, classic := &newStyleSink{}, &memorySink{}
		n, nr := eventsTo(t, newStyle)
		c, cr := recordTo(classic)
		seen := map[runtime.Object]int{}
		var mu sync.Mutex
		see := func(object runtime.Object) {
			mu.Lock()
			defer mu.Unlock()
			seen[object]++
			switch e := object.(type) {
			case *corev1.Event:
				e.Reason, e.Annotations["k"] = "Changed", "changed"
			case *eventsv1.Event:
				e.Reason, e.Related.Name = "Changed", "changed"
			}
		}
		for range 3 {
			if _, err := n.StartEventWatcher(see); err != nil {
				t.Fatal(err)
			}
			c.StartEventWatcher(func(event *corev1.Event) { see(event) })
		}
		nr.Eventf(podIn("ns", "web-0"), podIn("ns", "web-1"), "Normal", "Tested", "Testing", "note")
		cr.AnnotatedEventf(podIn("ns", "web-0"), map[string]string{"k": "v"}, "Normal", "Tested", "message")
		drain(t, n)
		drain(t, c)
		for object, times := range seen {
			if times != 3 {
				t.Errorf("%d of 3 watchers have seen %v", times, object)
			}
		}
		if len(seen) != 2 {
			t.Errorf("%d different Events, want 2", len(seen))
		}
		if e := newStyle.stored(); len(e) != 1 || e[0].Reason != "Tested" || e[0].Related.Name != "web-1" {
			t.Errorf("stored %v", e)
		}
		if e := classic.stored(); len(e) != 1 || e[0].Reason != "Tested" || e[0].Annotations["k"] != "v" {
			t.Errorf("stored %v", e)
		}
	})
}

func TestEventsBroadcasterWithoutASinkReturnsAnError(t *testing.T) {
	var nobody *events.EventSinkImpl
	for _, sink := range []events.EventSink{nil, nobody, &events.EventSinkImpl{}} {
		b := NewEventsBroadcaster(sink)
		if err := b.StartRecordingToSinkWithContext(t.Context()); err == nil {
			t.Errorf("%v was started", sink)
		}
		b.Shutdown()
	}
}
