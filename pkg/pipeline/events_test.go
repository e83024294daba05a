package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"

	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/test/testenv"
)

func startEvents(t *testing.T, b *EventsBroadcaster) {
	t.Helper()
	if err := b.StartRecordingToSinkWithContext(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// k/k#119376: counts are stored within seconds, not after half an hour. k/k#112365: other
// notes are not discarded. controller-runtime#3262: the action may be empty. The rights are
// those of most controllers.
func TestSeriesAreStoredWithTheirCountsAndNotes(t *testing.T) {
	namespace := testenv.Shared(t).Namespace(t)
	clients := writerClients(t, namespace, "events.k8s.io")
	b := NewEventsBroadcaster(&events.EventSinkImpl{Interface: clients.EventsV1()})
	startEvents(t, b)
	r := b.NewRecorder(scheme.Scheme, "example.com/controller")
	pod, related := podIn(namespace, "web-0"), podIn(namespace, "web-1")
	for range 5 {
		r.Eventf(pod, related, "Normal", "Scheduled", "Binding", "to %s", "node-1")
		r.Eventf(pod, related, "Normal", "Scheduled", "", "to %s", "node-2")
	}
	eventually(t, "the counts are stored", func() bool {
		var sum int64
		for _, e := range stored(t, namespace) {
			sum += countOf(&e)
		}
		return sum == 10
	})
	drain(t, b)
	for _, e := range stored(t, namespace) {
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
	clients := kubernetes.NewForConfigOrDie(testenv.Shared(t).Config())
	b := NewEventsBroadcaster(&events.EventSinkImpl{Interface: clients.EventsV1()})
	startEvents(t, b)
	long := strings.Repeat("€", 1000)
	controllers := []string{"kubelet", "", "two words", strings.Repeat("x", 200), "example.com/" + long, "a/b/c"}
	for _, controller := range controllers {
		r := b.NewRecorder(scheme.Scheme, controller).WithLogger(klog.Background())
		r.Eventf(podIn(namespace, "web-0"), nil, "Warning", long, long, "%s", long)
		r.Eventf(podIn(namespace, controller), nil, "Warning", "", "", "\xff\xfe")
	}
	drain(t, b)
	totals := ledgers(b.stations)[0]
	if totals.Written() != int64(2*len(controllers)) || totals.Pending() != 0 {
		t.Errorf("ledger %+v", totals)
	}
}

// The same calls of client-go's broadcaster and ours store the same Events, except for
// names, times, and our annotations.
func TestStoresWhatClientGosNewBroadcasterStores(t *testing.T) {
	shared := testenv.Shared(t)
	clients := kubernetes.NewForConfigOrDie(shared.Config())
	ours, theirs := shared.Namespace(t), shared.Namespace(t)
	call := func(r events.EventRecorderLogger, namespace string) {
		r.Eventf(podIn(namespace, "web-0"), nil, "Normal", "Pulled", "Pulling", "image %q", "app")
		r.WithLogger(klog.Background()).Eventf(podIn(namespace, "web-0"), podIn(namespace, "web-1"), "Warning", "Preempted", "Preempting", "by")
		r.Eventf(podIn(namespace, "web-2"), nil, "Unusual", "NoSuchType", "A", "not recorded")
	}
	sink := func() *events.EventSinkImpl { return &events.EventSinkImpl{Interface: clients.EventsV1()} }
	b := NewEventsBroadcaster(sink())
	startEvents(t, b)
	call(b.NewRecorder(scheme.Scheme, "example.com/controller"), ours)
	drain(t, b)

	ctx, cancel := context.WithCancel(t.Context())
	c := events.NewBroadcaster(sink())
	if err := c.StartRecordingToSinkWithContext(ctx); err != nil {
		t.Fatal(err)
	}
	call(c.NewRecorder(scheme.Scheme, "example.com/controller"), theirs)
	eventually(t, "client-go has written both", func() bool { return len(stored(t, theirs)) == 2 })
	cancel()
	c.Shutdown()

	modulo := func(in []corev1.Event) []corev1.Event {
		out := comparable(in)
		for i := range out {
			out[i].EventTime = metav1.MicroTime{}
			if out[i].Related != nil {
				out[i].Related.Namespace = ""
			}
		}
		slices.SortFunc(out, func(x, y corev1.Event) int { return strings.Compare(x.Reason, y.Reason) })
		return out
	}
	wantEqual(t, "stored Events", modulo(stored(t, theirs)), modulo(stored(t, ours)))
}

// memoryEventsSink is a custom sink of new-style Events.
type memoryEventsSink struct {
	before func(event *eventsv1.Event) error // may refuse a call

	mu     sync.Mutex
	events map[string]*eventsv1.Event
}

func (m *memoryEventsSink) stored() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.events)
}

func (m *memoryEventsSink) keep(event *eventsv1.Event) (*eventsv1.Event, error) {
	if m.before != nil {
		if err := m.before(event); err != nil {
			return nil, err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.events == nil {
		m.events = make(map[string]*eventsv1.Event)
	}
	m.events[event.Name] = event
	return nil, nil
}

func (m *memoryEventsSink) Create(_ context.Context, event *eventsv1.Event) (*eventsv1.Event, error) {
	return m.keep(event)
}

func (m *memoryEventsSink) Update(context.Context, *eventsv1.Event) (*eventsv1.Event, error) {
	return nil, errors.New("not used")
}

func (m *memoryEventsSink) Patch(_ context.Context, event *eventsv1.Event, _ []byte) (*eventsv1.Event, error) {
	return m.keep(event)
}

func TestCustomEventsSinkGetsWholeEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memoryEventsSink{}
		b := NewEventsBroadcaster(m)
		startEvents(t, b)
		r := b.NewRecorder(scheme.Scheme, "controller")
		for range 3 {
			r.Eventf(podIn("ns", "web-0"), nil, "Normal", "Tested", "Testing", "note")
			synctest.Wait()
		}
		drain(t, b)
		if len(m.events) != 1 {
			t.Fatalf("stored %v", m.events)
		}
		for name, e := range m.events {
			if e.Series == nil || e.Series.Count != 3 || e.Note != "note" || e.Regarding.Name != "web-0" || e.Name != name {
				t.Errorf("stored %+v", e)
			}
		}
	})
}

func TestRecordingToTheSinkCanBeStoppedAndStartedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memoryEventsSink{}
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
		if len(m.events) != 2 {
			t.Errorf("stored %v", m.events)
		}
		totals := b.stations.noSink.Totals()
		if totals.Dropped[occurrence.NoSink] != 2 {
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
		m := &memoryEventsSink{}
		b := NewEventsBroadcaster(m)
		startEvents(t, b)
		var seen []string
		stop, err := b.StartEventWatcher(func(object runtime.Object) { seen = append(seen, object.(*eventsv1.Event).Name) })
		if err != nil {
			t.Fatal(err)
		}
		stopLogging := b.StartStructuredLogging(10)
		r := b.NewRecorder(scheme.Scheme, "controller")
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
