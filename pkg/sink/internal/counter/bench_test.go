package counter

import (
	"fmt"
	"testing"

	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/sinktest"
)

// BenchmarkPlan is the time to plan the largest write, of claims or of entries. Settling it,
// with the mutex of the sink held, takes less.
func BenchmarkPlan(b *testing.B) {
	for _, awaited := range []bool{false, true} {
		b.Run(fmt.Sprint("awaited=", awaited), func(b *testing.B) {
			w := newWriter(b, occurrence.Digest{})
			for i := range MaxBatch {
				o := &occurrence.Occurrence{Weight: 1, Total: 1, Client: fmt.Sprint("client-", i)}
				if awaited {
					o.Settled = func(occurrence.Settlement) {}
				}
				w.add(o, sinktest.Event(false))
			}
			for b.Loop() {
				w.counter.plan(w.counter.batch())
			}
		})
	}
}
