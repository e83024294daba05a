package correlator

import (
	"fmt"
	"runtime"
	"testing"
	"time"
)

// storms are streams in which every occurrence differs.
var storms = []struct {
	name string
	next func(i int) (object, reason, message, user string)
	most int64 // bytes that a correlator with the default options may take
}{
	{"subjects", func(i int) (string, string, string, string) { return fmt.Sprint(i), "r", "m", "" }, 1 << 20},
	{"tenants", func(i int) (string, string, string, string) { return "a", "r", "m", fmt.Sprint(i) }, 3 << 19},
	{"reasons", func(i int) (string, string, string, string) { return "a", fmt.Sprint(i), "m", "" }, 1 << 20},
	{"messages", func(i int) (string, string, string, string) { return "a", "r", fmt.Sprint(i), "" }, 1 << 20},
	// 4,096 subjects with 64 groups of 9 messages each; new series replace those
	// without a pending write.
	{"everything", func(i int) (string, string, string, string) {
		return fmt.Sprint(i / (64 * 9) % 4096), fmt.Sprint(i % 64), fmt.Sprint(i / 64 % 9), ""
	}, 50 << 20},
}

// The memory of a correlator does not depend on the number of occurrences.
func TestMemoryIsBounded(t *testing.T) {
	for _, storm := range storms[:4] { // the benchmark has more
		if c, taken := correlatorAfter(t, 300_000, storm.next); taken > storm.most {
			t.Errorf("%s: %d KiB", storm.name, taken>>10)
			runtime.KeepAlive(c)
		}
	}
}

// BenchmarkMemory measures the memory of a correlator after a million occurrences, or as
// many as fill it.
func BenchmarkMemory(b *testing.B) {
	for _, storm := range storms {
		b.Run(storm.name, func(b *testing.B) {
			for b.Loop() {
				c, taken := correlatorAfter(b, max(1_000_000, 4096*64*9), storm.next)
				b.ReportMetric(float64(taken)/(1<<20), "MiB")
				if taken > storm.most {
					b.Errorf("%d MiB are more than %d", taken>>20, storm.most>>20)
				}
				runtime.KeepAlive(c)
			}
		})
	}
}

// correlatorAfter returns a correlator after a number of occurrences, a microsecond apart, and
// its size in bytes.
func correlatorAfter(t testing.TB, occurrences int, next func(i int) (object, reason, message, user string)) (*Correlator, int64) {
	before := heap()
	s := newStream(t, nil)
	for i := range occurrences {
		object, reason, message, user := next(i)
		s.reports(time.Microsecond, user, about(object, reason, message))
	}
	return s.Correlator, heap() - before
}

// heap returns the bytes in use after a garbage collection.
func heap() int64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}
