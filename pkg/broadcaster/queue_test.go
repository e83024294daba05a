package broadcaster

import (
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/klog/v2/ktesting"

	"github.com/eventd/eventd/pkg/occurrence"
)

func TestWarningDisplacesTheNewestNormal(t *testing.T) {
	b, s, l := subscribed(t, SubscribeOptions{Capacity: 4})
	var dropped []int64
	for i, eventtype := range []string{
		"Normal", "Warning", "Normal", "Warning",
		"Normal",  // Normal displaces nothing
		"Warning", // instead of 3
		"Warning", // instead of 1
		"Warning", // Warnings do not displace each other
	} {
		number := int64(i + 1)
		o := ofType(eventtype, number)
		o.Settled = func(s occurrence.Settlement) {
			if s.Reason != occurrence.QueueFull {
				t.Errorf("%d settled as %+v", number, s)
			}
			dropped = append(dropped, number)
		}
		b.Publish(o)
	}
	b.Shutdown()
	if got := drain(s); !slices.Equal(got, []int64{2, 4, 6, 7}) {
		t.Errorf("received %v", got)
	}
	if !slices.Equal(dropped, []int64{5, 3, 1, 8}) {
		t.Errorf("dropped %v", dropped)
	}
	wantTotals(t, l, 8, 4, occurrence.QueueFull, 4)
}

func TestQueueHasTheAgeOfItsOldest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(2, DropWhenFull)
		wantAge := func(want time.Duration) {
			t.Helper()
			if got := q.age(); got != want {
				t.Errorf("the oldest is %s old, not %s", got, want)
			}
		}
		wantAge(0)
		push := func(eventtype string) {
			o := ofType(eventtype, 0)
			o.Recorded = time.Now()
			q.push(o)
		}
		push("Normal")
		time.Sleep(time.Second)
		push("Normal")
		time.Sleep(time.Second)
		wantAge(2 * time.Second)
		q.pop()
		wantAge(time.Second)
		push("Warning")
		q.pop()
		wantAge(0)
		time.Sleep(time.Second)
		wantAge(time.Second)
		q.pop()
		wantAge(0)
	})
}

// Together, the rings behave as one slice.
func TestQueueAgreesWithItsModel(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	const capacity = 9
	q := newQueue(capacity, DropWhenFull)
	var model []*occurrence.Occurrence
	for number := range int64(20_000) {
		if random.IntN(2) == 0 {
			o, _ := q.pop()
			var want *occurrence.Occurrence
			if len(model) > 0 {
				want, model = model[0], model[1:]
			}
			if o != want {
				t.Fatalf("popped %v, want %v", o, want)
			}
			continue
		}
		o := ofType([]string{"Normal", "Warning"}[random.IntN(2)], number)
		o.Weight = random.Int64N(5)
		displaced, refused := q.push(o)
		switch newest := lastNormal(model); {
		case len(model) < capacity:
			model = append(model, o)
		case o.Event.Type == "Normal" || newest < 0:
			if refused != occurrence.QueueFull {
				t.Fatalf("%d was queued", number)
			}
			continue
		default:
			if displaced != model[newest] {
				t.Fatalf("displaced %v, want %v", displaced, model[newest])
			}
			model = append(slices.Delete(model, newest, newest+1), o)
		}
		var weight int64
		for _, o := range model {
			weight += o.Weight
		}
		if n, w := q.len(); n != len(model) || w != weight || refused != occurrence.NoReason {
			t.Fatalf("%d queued with a weight of %d, want %d with %d; refused %q", n, w, len(model), weight, refused)
		}
		held := 0
		for _, s := range slices.Concat(q.normal.slots, q.warnings.slots) {
			if s.occurrence != nil {
				held++
			}
		}
		if held != len(model) {
			t.Fatalf("the slots hold %d occurrences, of which %d are queued", held, len(model))
		}
	}
	if n := max(len(q.normal.slots), len(q.warnings.slots)); n != capacity {
		t.Errorf("a ring has %d slots, for %d occurrences", n, capacity)
	}
}

func lastNormal(model []*occurrence.Occurrence) int {
	for i, o := range slices.Backward(model) {
		if isNormal(o) {
			return i
		}
	}
	return -1
}

func TestPublishWaitsForASubscriberWithWaitWhenFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, waited, l := subscribed(t, SubscribeOptions{Capacity: 1, WhenFull: WaitWhenFull})
		other := subscribe(t, b, SubscribeOptions{Capacity: 10})
		published := make(chan struct{})
		go func() {
			defer close(published)
			publish(b, 3)
		}()
		synctest.Wait()
		// The second is waited for, and the other subscriber has it already.
		if n, _ := other.queue.len(); n != 2 {
			t.Errorf("the other has %d queued", n)
		}
		for number := range int64(3) {
			if o, _ := waited.Receive(); o.Total != number {
				t.Errorf("received %d, want %d", o.Total, number)
			}
		}
		<-published
		wantTotals(t, l, 3, 3, occurrence.QueueFull, 0)
		b.Shutdown()
	})
}

func TestStopAndShutdownEndTheWaitOfPublishers(t *testing.T) {
	for name, end := range map[string]func(*Broadcaster, *Subscriber){
		"Stop":     func(_ *Broadcaster, s *Subscriber) { s.Stop() },
		"Shutdown": func(b *Broadcaster, _ *Subscriber) { b.Shutdown() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, s, l := subscribed(t, SubscribeOptions{Capacity: 1, WhenFull: WaitWhenFull})
				const waiting = 5
				for range 1 + waiting {
					go publish(b, 1)
				}
				synctest.Wait()
				end(b, s)
				synctest.Wait() // a publisher that still waits fails the bubble
				if n := len(drain(s)); n != 1 {
					t.Errorf("received %d", n)
				}
				wantTotals(t, l, 1+waiting, 1, occurrence.Shutdown, waiting)
			})
		})
	}
}

type panicsWhenFormatted struct{}

func (panicsWhenFormatted) Error() string { panic(panicsWhenFormatted{}) }

func TestPanicsOfAHandlerAreRecoveredAndCounted(t *testing.T) {
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	b, s, _ := subscribed(t, SubscribeOptions{Capacity: 10})
	publish(b, 4)
	b.Shutdown()
	var handled []int64
	s.Handle(logger, func(o *occurrence.Occurrence) {
		handled = append(handled, o.Total)
		switch o.Total {
		case 1: // the first panic is logged, so its value is formatted
			panic(panicsWhenFormatted{})
		case 2:
			panic("handler")
		}
	})
	if !slices.Equal(handled, []int64{0, 1, 2, 3}) {
		t.Errorf("handled %v", handled)
	}
	if n := testutil.ToFloat64(s.metrics.panics); n != 2 {
		t.Errorf("%v panics are counted", n)
	}
	if n := len(logger.GetSink().(ktesting.Underlier).GetBuffer().Data()); n != 1 {
		t.Errorf("%d lines are logged", n)
	}
}

// Recorders may reference a queue for as long as the process runs.
func TestQueueThatIsClosedAndEmptyHoldsNoSlots(t *testing.T) {
	q := newQueue(10, DropWhenFull)
	q.push(ofType("Normal", 1))
	q.push(ofType("Warning", 2))
	q.close()
	for range 2 {
		if o, _ := q.pop(); o == nil {
			t.Error("what is queued is lost")
		}
	}
	if n := len(q.normal.slots) + len(q.warnings.slots); n > 0 {
		t.Errorf("%d slots are left", n)
	}
}
