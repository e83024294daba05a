package sink

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/eventd/eventd/internal/eventsize"
	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/ledger"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/sinktest"
)

// BenchmarkAddDeferredRepeat is what a repeat costs whose series waits for its
// due time, if nobody waits for the outcome.
func BenchmarkAddDeferredRepeat(b *testing.B) {
	for _, name := range []string{"anonymous", "named"} {
		b.Run(name, func(b *testing.B) {
			s, err := New(b.Context(), scripted(hang), ledger.New(), unlimited())
			if err != nil {
				b.Fatal(err)
			}
			event := sinktest.Event(false)
			target := occurrence.Target{Key: occurrence.KeyOf(identity.Of(event)), Event: event, Name: event.InvolvedObject.Name}
			o := &occurrence.Occurrence{Event: event, Weight: 1, Recorded: time.Now(), Deferred: func() {}, Settled: func(occurrence.Settlement) {}}
			if name == "named" {
				o.Client = "web-0-5d8f9c7b4-abcde.17a2b3c4d5e6f708"
			}
			b.ReportAllocs()
			for b.Loop() {
				o.Total++
				s.Add(o, target, time.Hour)
			}
			ctx, cancel := context.WithCancel(b.Context())
			cancel()
			s.Close(ctx)
		})
	}
}

func BenchmarkEventSize(b *testing.B) {
	event := sinktest.Event(false)
	b.Run("size", func(b *testing.B) {
		for b.Loop() {
			eventsize.Of(event)
		}
	})
	b.Run("Size", func(b *testing.B) {
		for b.Loop() {
			event.Size()
		}
	})
}

// BenchmarkAddNewSeries is what the first occurrence of a series costs whose write
// waits, in a process and from many tenants.
func BenchmarkAddNewSeries(b *testing.B) {
	for _, tenants := range []int{1, 1000} {
		b.Run(fmt.Sprint("tenants=", tenants), func(b *testing.B) {
			o := unlimited()
			o.MaxPendingSeries, o.MaxPendingBytes = 1<<40, 1<<50
			s, err := New(b.Context(), scripted(hang), ledger.New(), o)
			if err != nil {
				b.Fatal(err)
			}
			event := sinktest.Event(false)
			users := make([]string, tenants)
			for i := range users {
				users[i] = fmt.Sprint("system:node:", i)
			}
			target := occurrence.Target{Event: event, Digest: identity.Of(event), Name: event.InvolvedObject.Name}
			b.ReportAllocs()
			for b.Loop() {
				target.Key.A++
				s.Add(&occurrence.Occurrence{Event: event, Weight: 1, User: users[target.Key.A%uint64(tenants)], Recorded: time.Now()}, target, time.Hour)
			}
			ctx, cancel := context.WithCancel(b.Context())
			cancel()
			s.Close(ctx)
		})
	}
}

// BenchmarkOldestPending is what a scrape of the oldest pending occurrence costs, which
// does not depend on how many series are pending.
func BenchmarkOldestPending(b *testing.B) {
	for _, series := range []int{100, 40_000} {
		b.Run(fmt.Sprint("series=", series), func(b *testing.B) {
			s, err := New(b.Context(), scripted(hang), ledger.New(), unlimited())
			if err != nil {
				b.Fatal(err)
			}
			event := sinktest.Event(false)
			target := occurrence.Target{Event: event, Digest: identity.Of(event), Name: event.InvolvedObject.Name}
			for range series {
				target.Key.A++
				s.Add(&occurrence.Occurrence{Event: event, Weight: 1, Recorded: time.Now()}, target, time.Hour)
			}
			now := time.Now()
			for b.Loop() {
				s.oldest(now)
				s.overdue(now)
			}
			ctx, cancel := context.WithCancel(b.Context())
			cancel()
			s.Close(ctx)
		})
	}
}
