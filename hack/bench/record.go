package main

import (
	"runtime"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/record"

	"github.com/eventd/eventd/pkg/broadcaster"
	"github.com/eventd/eventd/pkg/ledger"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/recorder"
)

// burst is recorded at once. It fits into the queues of both sides, so that
// neither drops.
const burst = 500

// recording compares what Eventf takes of its caller's time, with one subscriber,
// in bursts. Between them the clock stands still until the subscriber has had
// all.
//
// "on the caller's goroutine": the subscriber's handler is held up until the
// burst is over, so that the figures are those of the recorder and of putting
// what it makes into the queue. What still runs beside it is client-go's own: the
// goroutine that distributes, and one for each new-style Event. Of the
// allocations, two are made by any caller of Eventf: the slice of arguments, and
// a number in it.
//
// "while it is handled": the handler is not held up, and competes with the caller
// for memory and processors. On our side it makes the Event, which client-go's
// recorder has made. The allocations are those of both goroutines.
func recording() []comparison {
	within := goal{ratio: 1. / 4, allocs: 3}
	return []comparison{
		{
			work: "Eventf on the caller's goroutine", occurrences: burst, goal: within,
			clientGo: alone(classicClientGo), eventd: alone(classicEventd),
		},
		{
			work: "new-style Eventf on the caller's goroutine", occurrences: burst, goal: within,
			clientGo: alone(newStyleClientGo), eventd: alone(newStyleEventd),
		},
		{
			work: "Eventf while it is handled", occurrences: burst,
			clientGo: handledMeanwhile(classicClientGo), eventd: handledMeanwhile(classicEventd),
		},
	}
}

var (
	source = corev1.EventSource{Component: "bench", Host: "node-1"}
	pod    = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "web-0", UID: "0a1b2c3d-0000-1111-2222-333344445555", ResourceVersion: "12345",
	}}
)

// subject is what is measured: a recorder and its subscriber.
type subject struct {
	eventf   func(number int)
	shutdown func()

	held    sync.RWMutex // locked while the handler is held up
	handled sync.WaitGroup
}

func (s *subject) handle() {
	s.held.RLock()
	defer s.held.RUnlock()
	s.handled.Done()
}

func classic(r record.EventRecorder) func(int) {
	return func(number int) { r.Eventf(pod, "Normal", "Benched", "attempt %d of %s", number, "web-0") }
}

func newStyle(r events.EventRecorder) func(int) {
	return func(number int) {
		r.Eventf(pod, nil, "Normal", "Benched", "Benching", "attempt %d of %s", number, "web-0")
	}
}

func classicClientGo(*testing.B) *subject {
	b := record.NewBroadcaster()
	s := &subject{eventf: classic(b.NewRecorder(scheme.Scheme, source)), shutdown: b.Shutdown}
	b.StartEventWatcher(func(*corev1.Event) { s.handle() })
	return s
}

func newStyleClientGo(t *testing.B) *subject {
	b := events.NewBroadcaster(&events.EventSinkImpl{}) // which is not started
	s := &subject{eventf: newStyle(b.NewRecorder(scheme.Scheme, "example.com/bench")), shutdown: b.Shutdown}
	if _, err := b.StartEventWatcher(func(apiruntime.Object) { s.handle() }); err != nil {
		t.Fatal(err)
	}
	return s
}

func classicEventd(t *testing.B) *subject {
	s, b := subscribed(t)
	s.eventf = classic(recorder.New(b, scheme.Scheme, source))
	return s
}

func newStyleEventd(t *testing.B) *subject {
	s, b := subscribed(t)
	s.eventf = newStyle(recorder.NewEvents(b, occurrence.EventsV1, scheme.Scheme, "example.com/bench"))
	return s
}

// subscribed has a subscriber such as a sink is, and no recorder yet.
func subscribed(t *testing.B) (*subject, *broadcaster.Broadcaster) {
	l := ledger.New()
	b := broadcaster.New(l)
	subscriber, err := b.Subscribe(broadcaster.SubscribeOptions{Capacity: queueCapacity, Ledger: l})
	if err != nil {
		t.Fatal(err)
	}
	s := &subject{shutdown: b.Shutdown}
	go func() {
		for o, ok := subscriber.Receive(); ok; o, ok = subscriber.Receive() {
			runtime.KeepAlive(o.WithEvent())
			s.handle()
		}
	}()
	return s, b
}

// burst calls around with what records a burst, and waits until it is handled.
func (s *subject) burst(around func(func())) {
	s.handled.Add(burst)
	around(func() {
		for i := range burst {
			s.eventf(1000 + i)
		}
	})
	wait(&s.handled)
}

// holdingUp does so while what it returns calls around.
func (s *subject) holdingUp(around func(func())) func(func()) {
	return func(record func()) {
		s.held.Lock()
		defer s.held.Unlock()
		around(record)
	}
}

func alone(newSubject func(*testing.B) *subject) func(*testing.B) {
	return func(b *testing.B) {
		s := newSubject(b)
		defer s.shutdown()
		var total stopwatch
		for range b.N {
			s.burst(s.holdingUp(total.time))
		}
		total.report(b)
		s.burst(s.holdingUp(func(record func()) { reportAllocs(b, record) }))
	}
}

func handledMeanwhile(newSubject func(*testing.B) *subject) func(*testing.B) {
	return func(b *testing.B) {
		s := newSubject(b)
		defer s.shutdown()
		b.ReportAllocs()
		var total stopwatch
		for range b.N {
			s.burst(total.time)
		}
		total.report(b)
	}
}

// stopwatch adds up times. That of testing.B looks at the memory whenever it
// stops, which costs a burst more than what there is to measure.
type stopwatch struct{ total time.Duration }

func (s *stopwatch) time(f func()) {
	begin := time.Now()
	f()
	s.total += time.Since(begin)
}

func (s *stopwatch) report(b *testing.B) {
	b.ReportMetric(float64(s.total)/float64(b.N), "ns/op")
}

// reportAllocs reports what f allocates, which is one operation.
func reportAllocs(b *testing.B, f func()) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc), "B/op")
	b.ReportMetric(float64(after.Mallocs-before.Mallocs), "allocs/op")
}

// wait panics if something was dropped, and so is never handled.
func wait(handled *sync.WaitGroup) {
	timeout := time.AfterFunc(time.Minute, func() { panic("occurrences are missing") })
	defer timeout.Stop()
	handled.Wait()
}
