package receivertest

import (
	"syscall"
	"testing"
	"time"

	"github.com/eventd/eventd/pkg/receiver"
)

// MeasureSend sends the batch in the loop of a benchmark, and reports the CPU time of the process,
// with that of the server in it.
func MeasureSend(b *testing.B, r receiver.Receiver, batch []receiver.Record) {
	b.ReportAllocs()
	begun := cpu(b)
	for b.Loop() {
		if rejected, err := r.Send(b.Context(), batch); rejected != 0 || err != nil {
			b.Fatal(rejected, err)
		}
	}
	b.ReportMetric((cpu(b)-begun).Seconds()/float64(b.N*len(batch))*10_000, "CPU-s/10000records")
}

func cpu(b *testing.B) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
