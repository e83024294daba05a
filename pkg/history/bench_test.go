package history

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	million  = 1_000_000
	capacity = 128 << 20
)

// BenchmarkMillion fills a history with a million versions of Events of a real cluster, and measures
// what they take and what a timeline of one object costs:
//
//	go test ./pkg/history -run '^$' -bench Million -benchtime 1x
func BenchmarkMillion(b *testing.B) {
	for b.Loop() {
		before := resident(b)
		h, err := New(Options{MaxBytes: capacity})
		if err != nil {
			b.Fatal(err)
		}
		c := newCluster(1)
		events := make(map[types.UID]struct{}, million)
		var spent time.Duration
		for range million {
			v := c.next()
			events[v.Event.UID] = struct{}{}
			begin := cpu(b)
			h.Add(v)
			waitSealed(h)
			spent += cpu(b) - begin
		}
		distinct := len(events)
		events = nil
		s := h.Status()
		full, pods := newSearchTimes(b, h, c.pods), len(c.pods)
		c = nil
		after := resident(b)
		b.ReportMetric(float64(s.Bytes)/float64(s.Versions), "bytes/version")
		b.ReportMetric(float64(s.Bytes)/(1<<20), "MiB-accounted")
		b.ReportMetric(float64(after-before)/(1<<20), "MiB-resident")
		b.ReportMetric(float64(s.Versions), "versions")
		b.ReportMetric(float64(distinct), "Events")
		b.ReportMetric(spent.Seconds()*1e6/million, "µs-CPU/version")
		b.ReportMetric(full.p50, "ms-p50")
		b.ReportMetric(full.p99, "ms-p99")
		b.ReportMetric(full.max, "ms-max")
		b.Logf("%d versions of %d Events of %d objects, %d blocks", s.Versions, distinct, pods, len(h.store.blocks))
		runtime.KeepAlive(h)
	}
}

type searchTimes struct{ p50, p99, max float64 }

// newSearchTimes measures the timelines of random objects.
func newSearchTimes(b *testing.B, h *History, pods []pod) searchTimes {
	rng := rand.New(rand.NewPCG(2, 2))
	var times []float64
	for range 1000 {
		p := pods[rng.IntN(len(pods))]
		begin := time.Now()
		r, err := h.List(b.Context(), Query{Namespaces: []string{p.namespace}, Object: Object{Kind: "Pod", Namespace: p.namespace, Name: p.name}, AllVersions: true})
		times = append(times, time.Since(begin).Seconds()*1e3)
		if err != nil || len(r.Versions) == 0 {
			b.Fatal(len(r.Versions), err)
		}
	}
	slices.Sort(times)
	return searchTimes{times[len(times)/2], times[len(times)*99/100], times[len(times)-1]}
}

// waitSealed waits until nothing is being sealed.
func waitSealed(h *History) {
	if sealing := h.sealingNow(); sealing != nil {
		<-sealing
	}
}

// cpu returns the processor time of the process.
func cpu(t testing.TB) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// resident returns the resident size of the process after a garbage collection, in bytes.
func resident(t testing.TB) int64 {
	debug.FreeOSMemory()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Skip("the resident size is read from /proc: ", err)
	}
	for line := range strings.Lines(string(status)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "VmRSS:" {
			kib, err := strconv.ParseInt(fields[1], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kib << 10
		}
	}
	t.Fatal(fmt.Errorf("no VmRSS in /proc/self/status"))
	return 0
}
