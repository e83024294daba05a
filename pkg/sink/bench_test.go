package sink

import (
	"fmt"
	"testing"
	"time"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/sinktest"
)

// startForBenchmark starts a sink with an Event to add, and closes it in the end.
func startForBenchmark(b *testing.B) (*Sink, occurrence.Target) {
	o := unlimited()
	o.MaxPendingSeries, o.MaxPendingBytes = 1<<40, 1<<50
	s := start(b.Context(), b, &fake{}, o)
	b.Cleanup(func() { s.Close(b.Context()) })
	event := sinktest.Event(false)
	digest := identity.Of(event)
	b.ReportAllocs()
	return s.Sink, occurrence.Target{Key: occurrence.KeyOf(digest), Digest: digest, Event: event, Name: event.InvolvedObject.Name}
}

// BenchmarkAddDeferredRepeat is what a repeat costs whose series waits for its
// deadline, if nobody waits for the outcome.
func BenchmarkAddDeferredRepeat(b *testing.B) {
	for name, client := range map[string]string{"anonymous": "", "named": "web-0-5d8f9c7b4-abcde.17a2b3c4d5e6f708"} {
		b.Run(name, func(b *testing.B) {
			s, target := startForBenchmark(b)
			o := &occurrence.Occurrence{
				Event: target.Event, Weight: 1, Recorded: time.Now(), Client: client,
				Deferred: func() {}, Settled: func(occurrence.Settlement) {},
			}
			for b.Loop() {
				o.Total++
				s.Add(o, target, time.Hour)
			}
		})
	}
}

// BenchmarkAddNewSeries is what the first occurrence of a series costs whose write
// waits, in a process and from many tenants.
func BenchmarkAddNewSeries(b *testing.B) {
	for _, tenants := range []int{1, 1000} {
		b.Run(fmt.Sprint("tenants=", tenants), func(b *testing.B) {
			s, target := startForBenchmark(b)
			users := make([]string, tenants)
			for i := range users {
				users[i] = fmt.Sprint("system:node:", i)
			}
			for b.Loop() {
				target.Key.A++
				user := users[target.Key.A%uint64(tenants)]
				s.Add(&occurrence.Occurrence{Event: target.Event, Weight: 1, User: user, Recorded: time.Now()}, target, time.Hour)
			}
		})
	}
}
