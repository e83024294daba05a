package pipeline

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/pkg/ledger"
	"github.com/eventd/eventd/test/await"
)

// A leader that loses the election and wins it again during the drain records at once, and
// what was pending before is written.
func TestRecordingStartsAgainWhileItDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &newStyleSink{memorySink{before: refuseFor(time.Second)}}
		b := NewEventsBroadcaster(m)
		r := b.NewRecorder(scheme.Scheme, "controller")
		for i := range 3 {
			ctx, cancel := context.WithCancel(t.Context())
			if err := b.StartRecordingToSinkWithContext(ctx); err != nil {
				t.Fatal(err)
			}
			r.Eventf(podIn("ns", fmt.Sprint("web-", i)), nil, "Normal", "Tested", "Testing", "note")
			cancel()
		}
		startEvents(t, b)
		r.Eventf(podIn("ns", "web-3"), nil, "Normal", "Tested", "Testing", "note")
		synctest.Wait()
		var recorded int64
		for _, l := range ledgers(b) {
			recorded += l.Recorded
		}
		time.Sleep(10 * time.Second)
		drain(t, b)
		m.want(t, 4, 4)
		if recorded != 4 {
			t.Errorf("%d recorded", recorded)
		}
	})
}

// Sinks may be stopped and started faster than they drain. Those that were stopped last have
// the most to write.
func TestSinksThatDrainAreBoundedAndTheOldestEndsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memorySink{before: refuseFor(time.Hour)}
		b := NewRecordBroadcaster()
		r := b.NewRecorder(scheme.Scheme, source)
		var want []int
		for n := 1; n <= 3*maxDrains; n++ {
			w := b.StartRecordingToSink(m)
			r.Event(podIn("ns", "web-0"), "Normal", "Tested", "")
			synctest.Wait()
			w.Stop()
			synctest.Wait()
			want = append(want, n)
			want = want[max(0, len(want)-maxDrains):]
			var got []int
			for w := range b.stages.writers {
				got = append(got, w.number)
			}
			if slices.Sort(got); !slices.Equal(got, want) {
				t.Fatalf("sinks %v drain, want %v", got, want)
			}
		}
		b.Shutdown()
	})
}

// The same holds for sinks that report to an eventd, here one that is away.
func TestRemoteSinksThatDrainAreBounded(t *testing.T) {
	b := NewRecordBroadcaster(with(func(o *Options) { o.DrainTimeout = time.Hour }))
	r := b.NewRecorder(scheme.Scheme, source)
	draining := func() (numbers []int) {
		b.stages.mu.Lock()
		defer b.stages.mu.Unlock()
		for w := range b.stages.writers {
			numbers = append(numbers, w.number)
		}
		slices.Sort(numbers)
		return numbers
	}
	var want []int
	for n := 1; n <= 2*maxDrains; n++ {
		w := b.StartRecordingToEventd(&rest.Config{Host: "https://127.0.0.1:1"})
		r.Event(podIn("ns", "web-0"), "Normal", "Tested", "")
		w.Stop()
		want = append(want, n)
		want = want[max(0, len(want)-maxDrains):]
		await.Until(t, fmt.Sprint("the sinks that drain are ", want), func() bool { return slices.Equal(draining(), want) })
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_ = b.ShutdownWithContext(ctx) // what is left is not of interest
}

// A sink that cannot start leaves nothing, however often it is tried.
func TestSinkThatCannotStartLeavesNoMetrics(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	b := NewRecordBroadcaster(with(func(o *Options) { o.Registerer, o.QueueCapacity = registry, 0 }))
	metrics := func() [2]int {
		return [2]int{metricsWith(t, registry, "broadcaster=record"), len(b.stages.nameHolder.all)}
	}
	before := metrics()
	for range 3 {
		<-b.StartRecordingToSink(&memorySink{}).ResultChan()
		<-b.StartRecordingToEventd(&rest.Config{Host: "https://127.0.0.1:1"}).ResultChan()
	}
	wantEqual(t, "numbers of metrics and registrations", before, metrics())
	drain(t, b)
}

func TestWatcherThatIsStoppedLeavesNoMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewPedanticRegistry()
		b := NewRecordBroadcaster(withMetrics(registry))
		metrics := func() [2]int {
			return [2]int{metricsWith(t, registry, "broadcaster=record"), len(b.stages.nameHolder.all)}
		}
		before := metrics()
		for range 3 {
			w := b.StartEventWatcher(func(*corev1.Event) {})
			if metrics() == before {
				t.Fatal("a watcher has no metrics")
			}
			w.Stop()
			<-w.ResultChan()
			synctest.Wait()
		}
		wantEqual(t, "numbers of metrics and registrations", before, metrics())
		drain(t, b)
	})
}

// After the shutdown, nothing is left of a sink that was stopped before.
func TestShutdownWaitsForSinksThatAreBeingStopped(t *testing.T) {
	for range 50 {
		registry := prometheus.NewPedanticRegistry()
		b := NewRecordBroadcaster(withMetrics(registry))
		stopped := b.StartRecordingToSink(&memorySink{})
		recordPods(b.NewRecorder(scheme.Scheme, source), 1)
		stopped.Stop()
		drain(t, b)
		if metricsWith(t, registry, "sink=1") > 0 {
			t.Fatal("the sink still has metrics")
		}
	}
}

// With too many broadcasters of one name, only the first have metrics.
func TestNamesOfBroadcastersAreBounded(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	for n := 1; n <= maxNames+2; n++ {
		l := ledger.New()
		plate, label, err := claimName(registry, "record", l)
		want := "record"
		if 1 < n && n <= maxNames {
			want = fmt.Sprintf("record-%d", n)
		}
		if label != want || (err != nil) != (n > maxNames) || plate.Ledger != l {
			t.Errorf("broadcaster %d is named %s: %v", n, label, err)
		}
	}
}

// registerer is a Registerer of a user, with a part that does something else.
type registerer struct {
	prometheus.Registerer
	register   func() error
	unregister func()
}

func (r *registerer) Register(c prometheus.Collector) error {
	if r.register != nil {
		return r.register()
	}
	return r.Registerer.Register(c)
}

func (r *registerer) Unregister(prometheus.Collector) bool {
	r.unregister()
	return false
}

// A broadcaster that was shut down releases its name once.
func TestBroadcasterReleasesItsNameOnce(t *testing.T) {
	registry := &registerer{Registerer: prometheus.NewPedanticRegistry(), unregister: func() {}}
	first, _, err := claimName(registry, "record", ledger.New())
	if err != nil {
		t.Fatal(err)
	}
	if first.release() {
		t.Error("it releases its name before the shutdown")
	}
	if first.shutDown(); !first.release() || first.release() {
		t.Fatal("it does not release its name once")
	}
	// The Registerer still has the name.
	if _, label, err := claimName(registry, "record", ledger.New()); err != nil || label != "record-2" {
		t.Errorf("the next one is named %s: %v", label, err)
	}
}

func TestBroadcastersOfOneNameShareARegisterer(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	start := func(m *memorySink) *RecordBroadcaster {
		b, r := recordTo(m, withMetrics(registry))
		b.StartEventWatcher(func(*corev1.Event) {})
		recordPods(r, 1)
		return b
	}
	var sinks [4]memorySink
	first, second := start(&sinks[0]), start(&sinks[1])
	drain(t, first)
	third := start(&sinks[2]) // in place of the first
	drain(t, third)
	fourth := start(&sinks[3])
	drain(t, second)
	drain(t, fourth)
	for i := range sinks {
		sinks[i].want(t, 1, 1)
	}
	of := func(name string) int { return metricsWith(t, registry, "broadcaster="+name) }
	if one, two, three := of("record"), of("record-2"), of("record-3"); one == 0 || one != two || three != 0 {
		t.Errorf("%d, %d and %d metrics", one, two, three)
	}
	wantSeries(t, registry, "eventd_occurrences_recorded_total", map[string]float64{
		"broadcaster=record,sink=": 0, "broadcaster=record,sink=1": 1,
		"broadcaster=record-2,sink=": 0, "broadcaster=record-2,sink=1": 1,
	})
}

func TestMetricsThatCannotBeRegisteredCostNoEvents(t *testing.T) {
	occupied := prometheus.NewRegistry()
	occupied.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "eventd_sink_pending_series", Help: "Of another package."}))
	occupied.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "eventd_recorder_repairs_total", Help: "Of another package."}))
	for name, registerer := range map[string]prometheus.Registerer{
		"names in use": occupied,
		"refuses":      &registerer{register: func() error { return errors.New("no more metrics") }},
		"panics":       &registerer{register: func() error { panic("broken registerer") }},
	} {
		t.Run(name, func(t *testing.T) {
			m := &memorySink{}
			b := NewRecordBroadcaster(withMetrics(registerer))
			r := b.NewRecorder(scheme.Scheme, source)
			stop := b.StartRecordingToSink(m)
			r.Event(podIn("ns", "web-0"), "Normal", "Tested", "")
			stop.Stop()
			<-stop.ResultChan()
			b.StartRecordingToSink(m)
			r.Event(podIn("ns", "web-1"), "Normal", "Tested", "")
			drain(t, b)
			m.want(t, 2, 2)
		})
	}
}

func TestShutdownDoesNotWaitForARegisterer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		never := make(chan struct{})
		b := NewRecordBroadcaster(withMetrics(&registerer{Registerer: prometheus.NewRegistry(), unregister: func() { <-never }}))
		stop := b.StartRecordingToSink(&memorySink{})
		watcher := b.StartEventWatcher(func(*corev1.Event) {})
		stop.Stop()
		watcher.Stop()
		wantShutdownWithin(t, b, 0, shutdownLimit)
		close(never)
	})
}

// A process may shut down many broadcasters, and keep references to their recorders.
func TestShutDownBroadcastersTakeLittleMemory(t *testing.T) {
	const broadcasters, events, limit = 4, 2000, 256 << 10
	o := DefaultOptions()
	o.Correlator.MaxSeries = 1000
	o.Sink.QPS = math.Inf(1) // so that it takes no time
	var held []any
	run := func() {
		o.Name = fmt.Sprint("record-", len(held))
		o.Registerer = prometheus.NewRegistry()
		b := NewRecordBroadcaster(WithOptions(o))
		m := &memorySink{}
		w := b.StartRecordingToSink(m)
		r := b.NewRecorder(scheme.Scheme, source)
		for i := range events {
			r.Event(podIn("ns", fmt.Sprint("web-", i)), "Normal", "Tested", strings.Repeat("m", 1000))
		}
		drain(t, b)
		m.events = nil
		held = append(held, b, r, w, o.Registerer)
	}
	run() // allocates what the process allocates once
	before := heap()
	for range broadcasters {
		run()
	}
	if each := (heap() - before) / broadcasters; each > limit {
		t.Errorf("each takes %d KiB", each>>10)
	}
	runtime.KeepAlive(held)
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
