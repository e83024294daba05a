package broadcaster

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/pkg/ledger"
	"github.com/eventd/eventd/pkg/occurrence"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// subscribed is a broadcaster with a subscriber and its ledger.
func subscribed(t *testing.T, o SubscribeOptions) (*Broadcaster, *Subscriber, *ledger.Ledger) {
	t.Helper()
	b := New(ledger.New())
	o.Ledger = ledger.New()
	return b, subscribe(t, b, o), o.Ledger
}

func subscribe(t *testing.T, b *Broadcaster, o SubscribeOptions) *Subscriber {
	t.Helper()
	s, err := b.Subscribe(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func ofType(eventtype string, number int64) *occurrence.Occurrence {
	return &occurrence.Occurrence{Weight: 1, Total: number, Event: &corev1.Event{Type: eventtype}}
}

// publish publishes Normal occurrences with the numbers from 0 on.
func publish(b *Broadcaster, n int64) {
	for number := range n {
		b.Publish(ofType("Normal", number))
	}
}

// drain receives until the end, and returns the numbers.
func drain(s *Subscriber) (numbers []int64) {
	for {
		o, ok := s.Receive()
		if !ok {
			return numbers
		}
		numbers = append(numbers, o.Total)
	}
}

// wantTotals fails unless a ledger has what was recorded, what is pending, and drops for
// one reason.
func wantTotals(t *testing.T, l *ledger.Ledger, recorded, pending int64, reason occurrence.Reason, dropped int64) {
	t.Helper()
	if got := l.Totals(); got.Recorded != recorded || got.Pending() != pending || got.Dropped[reason] != dropped {
		t.Errorf("the ledger has %+v, want %d recorded, %d pending, %d %s", got, recorded, pending, dropped, reason)
	}
}

func TestFullQueueHarmsOnlyItsOwner(t *testing.T) {
	b, slow, l := subscribed(t, SubscribeOptions{Capacity: 10})
	quick := subscribe(t, b, SubscribeOptions{Capacity: 1000})
	var ends []occurrence.Settlement
	for range 100 {
		b.Publish(&occurrence.Occurrence{Weight: 2, Settled: func(s occurrence.Settlement) { ends = append(ends, s) }})
	}
	b.Shutdown()
	if quick, slow := len(drain(quick)), len(drain(slow)); quick != 100 || slow != 10 {
		t.Errorf("the quick subscriber received %d, the slow one %d", quick, slow)
	}
	wantTotals(t, l, 200, 20, occurrence.QueueFull, 180)
	if len(ends) != 90 || ends[0].Reason != occurrence.QueueFull {
		t.Errorf("%d callbacks with %+v", len(ends), ends)
	}
}

func TestOccurrencesWithoutASinkAreCounted(t *testing.T) {
	l := ledger.New()
	b := New(l)
	subscribe(t, b, SubscribeOptions{Capacity: 1}) // watches only
	publish(b, 1)
	b.Refuse(occurrence.Malformed)
	b.Shutdown()
	publish(b, 1)
	for _, reason := range []occurrence.Reason{occurrence.NoSink, occurrence.Malformed, occurrence.Shutdown} {
		wantTotals(t, l, 3, 0, reason, 1)
	}
}

func TestAfterShutdownPublishingIsACountedNoOp(t *testing.T) {
	b, s, l := subscribed(t, SubscribeOptions{Capacity: 10})
	publish(b, 1)
	b.Shutdown()
	b.Shutdown()
	publish(b, 1)
	b.Refuse(occurrence.Malformed)
	if n := len(drain(s)); n != 1 {
		t.Errorf("received %d", n)
	}
	wantTotals(t, l, 3, 1, occurrence.Shutdown, 1)
	wantTotals(t, l, 3, 1, occurrence.Malformed, 1)
	if _, err := b.Subscribe(SubscribeOptions{Capacity: 1}); !errors.Is(err, ErrShutdown) {
		t.Errorf("subscribed: %v", err)
	}
}

func TestReceiveWaitsAndStopEndsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s, _ := subscribed(t, SubscribeOptions{Capacity: 10})
		other := subscribe(t, b, SubscribeOptions{Capacity: 10})
		received := make(chan int)
		go func() { received <- len(drain(s)) }()
		synctest.Wait()
		publish(b, 1)
		synctest.Wait()
		s.Stop()
		publish(b, 1)
		if n := <-received; n != 1 {
			t.Errorf("received %d", n)
		}
		b.Shutdown()
		if n := len(drain(other)); n != 2 {
			t.Errorf("the other received %d", n)
		}
	})
}

func TestSubscribersComeAndGoWhileOccurrencesFlow(t *testing.T) {
	b, steady, l := subscribed(t, SubscribeOptions{Capacity: 100_000})
	const publishers, each = 4, 2000
	var others sync.WaitGroup
	for range publishers {
		others.Go(func() { publish(b, each) })
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
	others.Wait()
	b.Shutdown()
	if n := len(drain(steady)); n != publishers*each {
		t.Errorf("the steady subscriber received %d", n)
	}
	wantTotals(t, l, publishers*each, publishers*each, occurrence.QueueFull, 0)
}

func TestMetrics(t *testing.T) { synctest.Test(t, testMetrics) }

func testMetrics(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	b, s, _ := subscribed(t, SubscribeOptions{Name: "sink", Capacity: 2, Registerer: r})
	for range 5 {
		b.Publish(&occurrence.Occurrence{Weight: 3, Recorded: time.Now()})
	}
	time.Sleep(4 * time.Second)
	want := `
# HELP eventd_broadcaster_dropped_total Occurrences dropped because a subscriber's queue was full or shut down.
# TYPE eventd_broadcaster_dropped_total counter
eventd_broadcaster_dropped_total{subscriber="sink"} 3
# HELP eventd_broadcaster_oldest_queued_seconds Time since a subscriber's oldest queued occurrence was recorded.
# TYPE eventd_broadcaster_oldest_queued_seconds gauge
eventd_broadcaster_oldest_queued_seconds{subscriber="sink"} 4
# HELP eventd_broadcaster_panics_total Panics of a subscriber's handler.
# TYPE eventd_broadcaster_panics_total counter
eventd_broadcaster_panics_total{subscriber="sink"} 0
# HELP eventd_broadcaster_queue_capacity Capacity of a subscriber's queue, in occurrences.
# TYPE eventd_broadcaster_queue_capacity gauge
eventd_broadcaster_queue_capacity{subscriber="sink"} 2
# HELP eventd_broadcaster_queue_length Occurrences queued for a subscriber.
# TYPE eventd_broadcaster_queue_length gauge
eventd_broadcaster_queue_length{subscriber="sink"} 2
# HELP eventd_occurrences_pending Occurrences without an outcome yet, by stage.
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
