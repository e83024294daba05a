package broadcaster

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"github.com/eventd/eventd/pkg/ledger"
	"github.com/eventd/eventd/pkg/occurrence"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func subscribe(t *testing.T, b *Broadcaster, o SubscribeOptions) *Subscriber {
	t.Helper()
	s, err := b.Subscribe(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func drain(s *Subscriber) (out []*occurrence.Occurrence) {
	for {
		o, ok := s.Receive()
		if !ok {
			return out
		}
		out = append(out, o)
	}
}

func one() *occurrence.Occurrence { return &occurrence.Occurrence{Weight: 1} }

func TestEverySubscriberGetsEverythingInOrder(t *testing.T) {
	b := New(ledger.New())
	const n = 1000
	var all []*occurrence.Occurrence
	var subscribers []*Subscriber
	for range 3 {
		subscribers = append(subscribers, subscribe(t, b, SubscribeOptions{Capacity: n}))
	}
	for range n {
		o := one()
		all = append(all, o)
		b.Publish(o)
	}
	b.Shutdown()
	for _, s := range subscribers {
		got := drain(s)
		if len(got) != n {
			t.Fatalf("received %d", len(got))
		}
		for i := range got {
			if got[i] != all[i] {
				t.Fatalf("occurrence %d is out of order", i)
			}
		}
	}
}

func TestQueueKeepsOrderWhenItGrows(t *testing.T) {
	b := New(ledger.New())
	s := subscribe(t, b, SubscribeOptions{Capacity: 200})
	var sent, received int64
	publish := func(n int) {
		for range n {
			sent++
			b.Publish(&occurrence.Occurrence{Weight: 1, Total: sent})
		}
	}
	receive := func(n int) {
		for range n {
			o, ok := s.Receive()
			if received++; !ok || o.Total != received {
				t.Fatalf("got %+v, want %d", o, received)
			}
		}
	}
	publish(60)
	receive(50)
	publish(150) // grows while the head is in the middle
	receive(100)
	publish(130)
	receive(190)
	if length, weight := s.queue.len(); length != 0 || weight != 0 {
		t.Errorf("%d left with a weight of %d", length, weight)
	}
}

func TestFullQueueHarmsOnlyItsOwner(t *testing.T) {
	b := New(ledger.New())
	l := ledger.New()
	slow := subscribe(t, b, SubscribeOptions{Capacity: 10, Ledger: l})
	quick := subscribe(t, b, SubscribeOptions{Capacity: 1000})
	var ends []occurrence.Settlement
	for range 100 {
		b.Publish(&occurrence.Occurrence{Weight: 2, Settled: func(s occurrence.Settlement) { ends = append(ends, s) }})
	}
	b.Shutdown()
	if n := len(drain(quick)); n != 100 {
		t.Errorf("the quick subscriber received %d", n)
	}
	if n := len(drain(slow)); n != 10 {
		t.Errorf("the slow subscriber received %d", n)
	}
	totals := l.Totals()
	if totals.Recorded != 200 || totals.Dropped[occurrence.QueueFull] != 180 || totals.Pending() != 20 {
		t.Errorf("ledger %+v", totals)
	}
	if len(ends) != 90 || ends[0].Reason != occurrence.QueueFull {
		t.Errorf("%d callbacks with %+v", len(ends), ends)
	}
}

func TestOccurrencesWithoutASinkAreCounted(t *testing.T) {
	l := ledger.New()
	b := New(l)
	subscribe(t, b, SubscribeOptions{Capacity: 1}) // watches only
	b.Publish(one())
	b.Refuse(occurrence.Malformed)
	b.Shutdown()
	b.Publish(one())
	totals := l.Totals()
	for _, reason := range []occurrence.Reason{occurrence.NoSink, occurrence.Malformed, occurrence.Shutdown} {
		if totals.Dropped[reason] != 1 {
			t.Errorf("%s: %d", reason, totals.Dropped[reason])
		}
	}
	if totals.Recorded != 3 || totals.Pending() != 0 {
		t.Errorf("ledger %+v", totals)
	}
}

func TestAfterShutdownPublishingIsACountedNoOp(t *testing.T) {
	b := New(ledger.New())
	l := ledger.New()
	s := subscribe(t, b, SubscribeOptions{Capacity: 10, Ledger: l})
	b.Publish(one())
	b.Shutdown()
	b.Shutdown()
	b.Publish(one())
	b.Refuse(occurrence.Malformed)
	if n := len(drain(s)); n != 1 {
		t.Errorf("received %d", n)
	}
	if totals := l.Totals(); totals.Recorded != 3 || totals.Dropped[occurrence.Shutdown] != 1 || totals.Dropped[occurrence.Malformed] != 1 {
		t.Errorf("ledger %+v", totals)
	}
	if _, err := b.Subscribe(SubscribeOptions{Capacity: 1}); !errors.Is(err, ErrShutdown) {
		t.Errorf("subscribed: %v", err)
	}
}

func TestReceiveWaitsAndStopEndsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(ledger.New())
		s := subscribe(t, b, SubscribeOptions{Capacity: 10})
		other := subscribe(t, b, SubscribeOptions{Capacity: 10})
		received := 0
		done := make(chan struct{})
		go func() {
			defer close(done)
			received = len(drain(s))
		}()
		synctest.Wait()
		b.Publish(one())
		synctest.Wait()
		s.Stop()
		b.Publish(one())
		<-done
		if received != 1 {
			t.Errorf("received %d", received)
		}
		b.Shutdown()
		if n := len(drain(other)); n != 2 {
			t.Errorf("the other received %d", n)
		}
	})
}

func TestSubscribersComeAndGoWhileOccurrencesFlow(t *testing.T) {
	b := New(ledger.New())
	l := ledger.New()
	steady := subscribe(t, b, SubscribeOptions{Capacity: 100_000, Ledger: l})
	const publishers, each = 4, 2000
	var publishing, others sync.WaitGroup
	for range publishers {
		publishing.Go(func() {
			for range each {
				b.Publish(one())
			}
		})
		others.Go(func() {
			for range 50 {
				s, err := b.Subscribe(SubscribeOptions{Capacity: 5})
				if err != nil {
					t.Error(err)
					return
				}
				s.Stop()
				drain(s)
			}
		})
	}
	publishing.Wait()
	others.Wait()
	b.Shutdown()
	if n := len(drain(steady)); n != publishers*each {
		t.Errorf("the steady subscriber received %d", n)
	}
	if totals := l.Totals(); totals.Recorded != publishers*each {
		t.Errorf("recorded %d", totals.Recorded)
	}
}

func TestMetrics(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	b := New(ledger.New())
	s := subscribe(t, b, SubscribeOptions{Name: "sink", Capacity: 2, Ledger: ledger.New(), Registerer: r})
	for range 5 {
		b.Publish(&occurrence.Occurrence{Weight: 3})
	}
	want := `
# HELP eventd_broadcaster_dropped_total Occurrences dropped because a subscriber's queue was full or shut down.
# TYPE eventd_broadcaster_dropped_total counter
eventd_broadcaster_dropped_total{subscriber="sink"} 3
# HELP eventd_broadcaster_panics_total Panics of a subscriber's handler.
# TYPE eventd_broadcaster_panics_total counter
eventd_broadcaster_panics_total{subscriber="sink"} 0
# HELP eventd_broadcaster_queue_capacity Capacity of a subscriber's queue, in occurrences.
# TYPE eventd_broadcaster_queue_capacity gauge
eventd_broadcaster_queue_capacity{subscriber="sink"} 2
# HELP eventd_broadcaster_queue_length Occurrences queued for a subscriber.
# TYPE eventd_broadcaster_queue_length gauge
eventd_broadcaster_queue_length{subscriber="sink"} 2
# HELP eventd_occurrences_pending Occurrences without an outcome yet, by station.
# TYPE eventd_occurrences_pending gauge
eventd_occurrences_pending{station="broadcaster"} 6
`
	if err := testutil.GatherAndCompare(r, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	b.Shutdown()
	drain(s)
	s.Stop()
	if n, err := testutil.GatherAndCount(r); n != 0 || err != nil {
		t.Errorf("%d metrics of a stopped subscriber: %v", n, err)
	}
}

func TestErrorNamesTheInvalidOption(t *testing.T) {
	for _, capacity := range []int{0, -1} {
		_, err := New(ledger.New()).Subscribe(SubscribeOptions{Capacity: capacity})
		if err == nil || !strings.Contains(err.Error(), "options: Capacity must be greater than 0") {
			t.Errorf("with a capacity of %d: %v", capacity, err)
		}
	}
}
