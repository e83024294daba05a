package main

import (
	"runtime"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"

	"github.com/eventd/eventd/internal/ledger"
	"github.com/eventd/eventd/pkg/broadcaster"
	"github.com/eventd/eventd/pkg/recorder"
)

// burst is recorded at once. It fits into the queues of both sides, of 1,000
// each, so that neither drops.
const burst = 500

// recording compares what Eventf takes of its caller's time, with one event
// watcher, in bursts. Between them the clock stands still until the watcher has
// had all.
//
// "on the caller's goroutine": the watcher's handler is held up until the burst
// is over, so that the figures are those of the recorder and of putting what it
// makes into the queue. What still runs beside it is client-go's distributing
// goroutine, which no handler can hold up. Of the allocations, two are made by
// the caller of Eventf on either side: the slice of arguments and a number in it.
//
// "while it is handled": the handler is not held up, and competes with the caller
// for memory and processors. The allocations are those of both goroutines.
func recording() []comparison {
	return []comparison{
		{
			work: "Eventf on the caller's goroutine", occurrences: burst, goal: goal{ratio: 1. / 4, allocs: 3},
			clientGo: eventfAlone(watchClientGo), eventd: eventfAlone(watchEventd),
		},
		{
			work: "Eventf while it is handled", occurrences: burst,
			clientGo: eventfHandled(watchClientGo), eventd: eventfHandled(watchEventd),
		},
	}
}

var (
	source = corev1.EventSource{Component: "bench", Host: "node-1"}
	pod    = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "web-0", UID: "0a1b2c3d-0000-1111-2222-333344445555", ResourceVersion: "12345",
	}}
)

// watched is a recorder with one subscriber.
type watched struct {
	record.EventRecorder
	held     sync.RWMutex // locked while the handler is held up
	handled  sync.WaitGroup
	shutdown func()
}

func (w *watched) handle() {
	w.held.RLock()
	defer w.held.RUnlock()
	w.handled.Done()
}

func watchClientGo(*testing.B) *watched {
	broadcaster := record.NewBroadcaster()
	w := &watched{EventRecorder: broadcaster.NewRecorder(scheme.Scheme, source), shutdown: broadcaster.Shutdown}
	broadcaster.StartEventWatcher(func(*corev1.Event) { w.handle() })
	return w
}

// watchEventd subscribes as a sink does.
func watchEventd(b *testing.B) *watched {
	l := ledger.New()
	broadcast := broadcaster.New(l)
	subscriber, err := broadcast.Subscribe(broadcaster.SubscribeOptions{Capacity: broadcaster.DefaultCapacity, Ledger: l})
	if err != nil {
		b.Fatal(err)
	}
	w := &watched{EventRecorder: recorder.New(broadcast, scheme.Scheme, source), shutdown: broadcast.Shutdown}
	go func() {
		for {
			o, ok := subscriber.Receive()
			if !ok {
				return
			}
			runtime.KeepAlive(o.WithEvent())
			w.handle()
		}
	}()
	return w
}

func recordBurst(r record.EventRecorder) {
	for i := range burst {
		r.Eventf(pod, "Normal", "Benched", "attempt %d of %s", 1000+i, "web-0")
	}
}

// burst records one, and calls around with what does it.
func (w *watched) burst(around func(func())) {
	w.handled.Add(burst)
	around(func() { recordBurst(w) })
	wait(&w.handled)
}

// alone holds up the handler during a burst.
func (w *watched) alone(around func(func())) {
	w.burst(func(record func()) {
		w.held.Lock()
		defer w.held.Unlock()
		around(record)
	})
}

func eventfAlone(watch func(*testing.B) *watched) func(*testing.B) {
	return func(b *testing.B) {
		w := watch(b)
		defer w.shutdown()
		var total stopwatch
		for range b.N {
			w.alone(total.time)
		}
		total.report(b)
		w.alone(func(record func()) { reportAllocs(b, record) })
	}
}

func eventfHandled(watch func(*testing.B) *watched) func(*testing.B) {
	return func(b *testing.B) {
		w := watch(b)
		defer w.shutdown()
		b.ReportAllocs()
		var total stopwatch
		for range b.N {
			w.burst(total.time)
		}
		total.report(b)
	}
}

// stopwatch adds up times. That of testing.B looks at the memory whenever it
// stops, which costs a burst more than what there is to measure.
type stopwatch struct{ time.Duration }

func (s *stopwatch) time(f func()) {
	begin := time.Now()
	f()
	s.Duration += time.Since(begin)
}

func (s *stopwatch) report(b *testing.B) {
	b.ReportMetric(float64(s.Duration)/float64(b.N), "ns/op")
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

// wait does not return if something was dropped, and so is never handled.
func wait(handled *sync.WaitGroup) {
	timeout := time.AfterFunc(20*time.Second, func() { panic("occurrences are missing") })
	defer timeout.Stop()
	handled.Wait()
}
