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
			event := testEvent(false)
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

// BenchmarkPlan is what it takes to plan the largest write, with the sink's mutex
// held.
func BenchmarkPlan(b *testing.B) {
	for _, awaited := range []bool{false, true} {
		b.Run(fmt.Sprint("awaited=", awaited), func(b *testing.B) {
			w := newWriter(occurrence.Digest{})
			event := testEvent(false)
			for i := range maxBatch {
				o := &occurrence.Occurrence{Weight: 1, Total: 1, Client: fmt.Sprint("client-", i)}
				if awaited {
					o.Settled = func(occurrence.Settlement) {}
				}
				w.add(o, event)
			}
			n := 0
			for b.Loop() {
				p := w.series.account.plan()
				n = int(p.added)
			}
			b.ReportMetric(float64(n), "claims")
		})
	}
}

func BenchmarkEventSize(b *testing.B) {
	event := testEvent(false)
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

// BenchmarkSettle is the same for the answer to such a write.
func BenchmarkSettle(b *testing.B) {
	w := newWriter(occurrence.Digest{})
	event := testEvent(false)
	for range maxBatch {
		w.add(&occurrence.Occurrence{Weight: 1, Settled: func(occurrence.Settlement) {}}, event)
	}
	a := w.series.account
	a.observed = &observation{meta: event}
	pending := a.pending
	for b.Loop() {
		a.pending = pending
		a.settleWritten(w.sequence, false)
	}
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
			event := testEvent(false)
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
