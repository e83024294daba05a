package correlator

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/eventd/eventd/pkg/occurrence"
)

// storms are streams in which every occurrence is another.
var storms = []struct {
	name string
	next func(i int) (object, reason, message string)
	user func(i int) string
	most int64 // bytes that a correlator with the default options may take
}{
	{"subjects", func(i int) (string, string, string) { return fmt.Sprint(i), "r", "m" }, nobody, 3 << 20},
	{"tenants", func(int) (string, string, string) { return "a", "r", "m" }, func(i int) string { return fmt.Sprint(i) }, 3 << 20},
	{"reasons", func(i int) (string, string, string) { return "a", fmt.Sprint(i), "m" }, nobody, 1 << 20},
	{"messages", func(i int) (string, string, string) { return "a", "r", fmt.Sprint(i) }, nobody, 1 << 20},
	// 4,096 subjects with 64 groups of 9 messages each; what is remembered of
	// series that owe nothing is replaced by what is new.
	{"everything", func(i int) (string, string, string) {
		return fmt.Sprint(i / (64 * 9) % 4096), fmt.Sprint(i % 64), fmt.Sprint(i / 64 % 9)
	}, nobody, 80 << 20},
}

func nobody(int) string { return "" }

// What a correlator remembers does not depend on how much it has seen.
func TestMemoryIsBounded(t *testing.T) {
	for _, storm := range storms[:4] { // the benchmark has more
		if c, taken := remembered(300_000, storm.next, storm.user); taken > storm.most {
			t.Errorf("%s: %d KiB", storm.name, taken>>10)
			runtime.KeepAlive(c)
		}
	}
}

// BenchmarkMemory tells what a correlator takes after a million occurrences (of
// "everything": after as many as fill it).
func BenchmarkMemory(b *testing.B) {
	for _, storm := range storms {
		b.Run(storm.name, func(b *testing.B) {
			for b.Loop() {
				c, taken := remembered(max(1_000_000, 4096*64*9), storm.next, storm.user)
				b.ReportMetric(float64(taken)/(1<<20), "MiB")
				if taken > storm.most {
					b.Errorf("%d MiB are more than %d", taken>>20, storm.most>>20)
				}
				runtime.KeepAlive(c)
			}
		})
	}
}

// remembered is how much the heap has grown by a correlator that has seen so
// many occurrences, a microsecond apart.
func remembered(occurrences int, next func(i int) (object, reason, message string), user func(i int) string) (*Correlator, int64) {
	before := heap()
	c, err := New(DefaultOptions())
	if err != nil {
		panic(err)
	}
	now := time.Unix(0, 0)
	for i := range occurrences {
		c.Correlate(&occurrence.Occurrence{Event: about(next(i)), Weight: 1, User: user(i)}, now.Add(time.Duration(i)*time.Microsecond))
	}
	return c, heap() - before
}

// heap is what is in use after a collection.
func heap() int64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}
