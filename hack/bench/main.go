// Command bench measures eventd's stations beside client-go's, in one run, and
// prints a table of ratios. Absolute figures move with the machine and with what
// else it does; ratios of one run are what to compare.
package main

import (
	"fmt"
	"os"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/eventd/eventd/internal/ledger"
	"github.com/eventd/eventd/internal/occurrence"
	"github.com/eventd/eventd/pkg/broadcaster"
	"github.com/eventd/eventd/pkg/correlator"
	"github.com/eventd/eventd/pkg/recorder"
)

// rounds is how often each side is measured; the median counts.
const rounds = 3

// comparison is one piece of work, done by client-go and by eventd.
type comparison struct {
	work             string
	clientGo, eventd func(*testing.B)
}

func main() {
	testing.Init()
	klog.SetLogger(logr.Discard()) // client-go logs a whole Event for each that it drops
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(out, "work\tclient-go ns\tB\tallocs\teventd ns\tB\tallocs\teventd/client-go\t")
	for _, c := range []comparison{
		{"correlate a repeat", correlateClientGo(repeated), correlateEventd(repeated)},
		{"correlate a new series", correlateClientGo(distinct), correlateEventd(distinct)},
		{"Eventf on the caller's goroutine", eventfClientGo, eventfEventd},
	} {
		base, ours := measure(c.clientGo, c.eventd)
		fmt.Fprintf(out, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%.4f\t\n", c.work,
			base.NsPerOp(), base.AllocedBytesPerOp(), base.AllocsPerOp(),
			ours.NsPerOp(), ours.AllocedBytesPerOp(), ours.AllocsPerOp(),
			float64(ours.NsPerOp())/float64(base.NsPerOp()))
	}
	out.Flush()
}

// measure takes turns, so that both sides meet the same weather.
func measure(a, b func(*testing.B)) (testing.BenchmarkResult, testing.BenchmarkResult) {
	var as, bs []testing.BenchmarkResult
	for range rounds {
		as = append(as, testing.Benchmark(a))
		bs = append(bs, testing.Benchmark(b))
	}
	return median(as), median(bs)
}

func median(results []testing.BenchmarkResult) testing.BenchmarkResult {
	for i := range results {
		for j := i; j > 0 && results[j].NsPerOp() < results[j-1].NsPerOp(); j-- {
			results[j], results[j-1] = results[j-1], results[j]
		}
	}
	return results[len(results)/2]
}

func event(object string) *corev1.Event {
	now := metav1.Now()
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: object + ".17a2b3c4d5e6f708"},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: "v1", Kind: "Pod", Namespace: "default", Name: object,
			UID: "0a1b2c3d-0000-1111-2222-333344445555", ResourceVersion: "12345", FieldPath: "spec.containers{app}",
		},
		Reason: "BackOff", Message: "Back-off restarting failed container app in pod " + object, Type: "Warning",
		Source:              corev1.EventSource{Component: "kubelet", Host: "node-1"},
		ReportingController: "kubelet", ReportingInstance: "node-1",
		Count: 1, FirstTimestamp: now, LastTimestamp: now,
	}
}

// repeated and distinct say which Event is the i-th.
func repeated(int) string   { return "web-0" }
func distinct(i int) string { return fmt.Sprint("web-", i) }

// stream makes the Events beforehand: making them is not the work.
func stream(b *testing.B, object func(int) string) []*corev1.Event {
	events := make([]*corev1.Event, 1<<14)
	for i := range events {
		events[i] = event(object(i))
	}
	b.ReportAllocs()
	b.ResetTimer()
	return events
}

func correlateClientGo(object func(int) string) func(*testing.B) {
	return func(b *testing.B) {
		// The spam filter is opened: a repeat that it refuses does no work.
		c := record.NewEventCorrelatorWithOptions(record.CorrelatorOptions{
			BurstSize: 1 << 30, QPS: 1 << 20, Clock: clock.RealClock{},
		})
		events := stream(b, object)
		for i := range b.N {
			if _, err := c.EventCorrelate(events[i%len(events)]); err != nil {
				b.Fatal(err)
			}
		}
	}
}

func correlateEventd(object func(int) string) func(*testing.B) {
	return func(b *testing.B) {
		c, err := correlator.New(correlator.DefaultOptions())
		if err != nil {
			b.Fatal(err)
		}
		events := stream(b, object)
		o := occurrence.Occurrence{Weight: 1}
		for i := range b.N {
			o.Event = events[i%len(events)]
			c.Correlate(&o, time.Now())
		}
	}
}

var (
	source = corev1.EventSource{Component: "bench", Host: "node-1"}
	pod    = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-0", UID: "uid", ResourceVersion: "3"}}
)

func eventf(b *testing.B, r record.EventRecorder) {
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		r.Eventf(pod, "Normal", "Benched", "attempt %d of %s", i, "web-0")
	}
}

func eventfClientGo(b *testing.B) {
	broadcaster := record.NewBroadcaster()
	defer broadcaster.Shutdown()
	var watcher watch.Interface = broadcaster.StartEventWatcher(func(*corev1.Event) {})
	defer watcher.Stop()
	eventf(b, broadcaster.NewRecorder(scheme.Scheme, source))
}

func eventfEventd(b *testing.B) {
	l := ledger.New()
	broadcast := broadcaster.New(l)
	subscriber, err := broadcast.Subscribe(broadcaster.SubscribeOptions{Capacity: broadcaster.DefaultCapacity, Ledger: l})
	if err != nil {
		b.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			if _, ok := subscriber.Receive(); !ok {
				return
			}
		}
	}()
	eventf(b, recorder.New(broadcast, scheme.Scheme, source))
	broadcast.Shutdown()
	<-done
}
