package receivertest

import (
	"testing"

	"github.com/eventd/eventd/pkg/receiver"
	"github.com/eventd/eventd/test/cputime"
)

// MeasureSend sends the batch in the loop of a benchmark, and reports the CPU time of the process,
// with that of the server in it.
func MeasureSend(b *testing.B, r receiver.Receiver, batch []receiver.Record) {
	b.ReportAllocs()
	begun := cputime.Spent(b)
	for b.Loop() {
		if rejected, err := r.Send(b.Context(), batch); rejected != 0 || err != nil {
			b.Fatal(rejected, err)
		}
	}
	b.ReportMetric((cputime.Spent(b)-begun).Seconds()/float64(b.N*len(batch))*10_000, "CPU-s/10000records")
}
