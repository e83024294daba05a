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
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/pkg/observer"
	"github.com/eventd/eventd/test/cputime"
)

const (
	million  = 1_000_000
	capacity = 128 << 20
)

// BenchmarkMillion fills a history with versions of a million Events of a cluster, and measures what they
// take, and what the timeline of an object costs, for random pods and for the objects with most Events:
//
//	go test ./pkg/history -run '^$' -bench Million -benchtime 1x
//
// Times are those of the wall clock; CPU is that of the process.
func BenchmarkMillion(b *testing.B) {
	for b.Loop() {
		before := resident(b)
		h, err := New(Options{MaxBytes: capacity})
		if err != nil {
			b.Fatal(err)
		}
		c := newCluster(1)
		events, spent := 0, time.Duration(0)
		for events < million {
			chunk := make([]observer.Version, 10_000)
			for i := range chunk {
				if chunk[i] = c.next(); chunk[i].Event.Count < 2 {
					events++
				}
			}
			begin := cputime.Spent(b)
			for _, v := range chunk {
				h.Add(v)
				for behind := h.sealed(); behind != nil; behind = h.sealed() {
					<-behind
				}
			}
			waitSealed(h)
			spent += cputime.Spent(b) - begin
		}
		s, pods := h.Status(), c.pods
		c = nil
		b.ReportMetric(float64(s.Bytes)/float64(events), "B/Event")
		b.ReportMetric(float64(s.Bytes)/float64(s.Versions), "B/version")
		b.ReportMetric(float64(spent.Microseconds())/float64(s.Versions), "µs-CPU/version")
		b.Logf("%d versions of %d Events, of %d pods and %d workloads, in %d blocks; %.1f MiB accounted; %v evicted",
			s.Versions, events, len(pods), clusterWorkloads, len(h.store.blocks), mib(s.Bytes), testutil.ToFloat64(h.metrics.evicted))
		random := rand.New(rand.NewPCG(2, 2))
		objects := make([]Object, 1000)
		for i := range objects {
			p := pods[random.IntN(len(pods))]
			objects[i] = Object{Kind: "Pod", Namespace: p.namespace, Name: p.name, UID: p.uid}
		}
		timelines(b, h, "pods, cold", objects, false)
		timelines(b, h, "pods, warm", objects, false)
		timelines(b, h, "pods, all versions", objects, true)
		for i := range objects {
			p := pods[random.IntN(len(pods))]
			objects[i] = Object{Kind: "ReplicaSet", Namespace: p.namespace, Name: p.workload}
		}
		timelines(b, h, "busiest objects", objects[:200], true)
		pods, objects = nil, nil
		begin := cputime.Spent(b)
		if r, err := h.List(b.Context(), Query{Reason: "Scheduled", Type: corev1.EventTypeWarning}); err != nil || len(r.Versions) > 0 {
			b.Fatal(err)
		}
		b.Logf("a query that decodes all: %v CPU", cputime.Spent(b)-begin)
		b.Logf("%.1f MiB resident", mib(resident(b)-before))
		runtime.KeepAlive(h)
	}
}

func mib(n int64) float64 { return float64(n) / (1 << 20) }

// timelines measures the timelines of objects.
func timelines(b *testing.B, h *History, what string, objects []Object, all bool) {
	var times []time.Duration
	versions, spent := 0, cputime.Spent(b)
	for _, o := range objects {
		begin := time.Now()
		r, err := h.List(b.Context(), Query{Namespaces: []string{o.Namespace}, Object: o, AllVersions: all})
		times = append(times, time.Since(begin))
		if versions += len(r.Versions); err != nil {
			b.Fatal(err)
		}
		r.Release()
	}
	spent = cputime.Spent(b) - spent
	slices.Sort(times)
	n := len(times)
	b.Logf("timelines of %s: %d versions each; p50 %v, p99 %v, max %v; %v CPU each", what, versions/n,
		times[n/2].Round(time.Microsecond), times[n*99/100].Round(time.Microsecond), times[n-1].Round(time.Microsecond), spent/time.Duration(n))
}

// waitSealed waits until nothing is being sealed.
func waitSealed(h *History) {
	if sealing := h.sealingNow(); sealing != nil {
		<-sealing
	}
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

// BenchmarkAdd is the time of Add while versions are sealed beside it, and with followers at the end:
//
//	go test ./pkg/history -run '^$' -bench Add
func BenchmarkAdd(b *testing.B) {
	for _, followers := range []int{0, 50} {
		b.Run(fmt.Sprint(followers, "-followers"), func(b *testing.B) {
			h, err := New(Options{MaxBytes: capacity})
			if err != nil {
				b.Fatal(err)
			}
			c := newCluster(1)
			h.Add(c.next())
			versions := make([]observer.Version, 10_000)
			for i := range versions {
				versions[i] = c.next()
			}
			for range followers {
				f, err := h.Follow("", "")
				if err != nil {
					b.Fatal(err)
				}
				go func() {
					for tick := time.Tick(250 * time.Millisecond); b.Context().Err() == nil; <-tick {
						for more := true; more; more = !f.UpToDate() {
							if _, _, err := f.Read(b.Context(), 500); err != nil {
								return
							}
						}
					}
				}()
			}
			for i := 0; b.Loop(); i++ {
				h.Add(versions[i%len(versions)])
			}
			waitSealed(h)
		})
	}
}
