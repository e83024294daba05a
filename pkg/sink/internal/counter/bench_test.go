package counter

import (
	"fmt"
	"testing"

	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/sinktest"
)

// BenchmarkPlan is the time to plan the largest write.
func BenchmarkPlan(b *testing.B) {
	for _, awaited := range []bool{false, true} {
		b.Run(fmt.Sprint("awaited=", awaited), func(b *testing.B) {
			w := newWriter(b, occurrence.Digest{})
			event := sinktest.Event(false)
			for i := range MaxBatch {
				o := &occurrence.Occurrence{Weight: 1, Total: 1, Client: fmt.Sprint("client-", i)}
				if awaited {
					o.Settled = func(occurrence.Settlement) {}
				}
				w.add(o, event)
			}
			n := 0
			for b.Loop() {
				p := w.counter.plan(w.counter.batch())
				n = int(p.added)
			}
			b.ReportMetric(float64(n), "claims")
		})
	}
}

// BenchmarkSettle is the time to settle it, with the mutex of the sink held.
func BenchmarkSettle(b *testing.B) {
	w := newWriter(b, occurrence.Digest{})
	event := sinktest.Event(false)
	for range MaxBatch {
		w.add(&occurrence.Occurrence{Weight: 1, Settled: func(occurrence.Settlement) {}}, event)
	}
	a := w.counter
	a.observed = &observation{meta: event}
	pending := a.pending
	for b.Loop() {
		a.pending = pending
		a.settleWritten(w.sequence, false)
	}
}
