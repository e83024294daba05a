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
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/eventd/eventd/pkg/ledger"
)

// A leader that loses the election and wins it again during the drain records at once, and
// what was pending before is written.
func TestRecordingStartsAgainWhileItDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		m := &memoryEventsSink{before: func(*eventsv1.Event) error {
			if time.Since(begun) < time.Second {
				return apierrors.NewTooManyRequestsError("later")
			}
			return nil
		}}
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
		for _, l := range ledgers(b.stations) {
			recorded += l.Recorded
		}
		time.Sleep(10 * time.Second)
		drain(t, b)
		if recorded != 4 || m.stored() != 4 {
			t.Errorf("%d recorded, %d Events are stored", recorded, m.stored())
		}
	})
}

// Sinks may be stopped and started faster than they drain.
func TestSinksThatDrainAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memorySink{before: func(*corev1.Event) error { return apierrors.NewTooManyRequestsError("later") }}
		b := NewRecordBroadcaster()
		r := b.NewRecorder(scheme.Scheme, source)
		for range 20 {
			w := b.StartRecordingToSink(m)
			r.Event(podIn("ns", "web-0"), "Normal", "Tested", "")
			synctest.Wait()
			w.Stop()
			synctest.Wait()
			if n := len(ledgers(b.stations)); n > maxDrains {
				t.Fatalf("%d sinks drain", n)
			}
		}
		b.Shutdown()
	})
}

// The sinks that were stopped last have the most to write.
func TestOldestDrainEndsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memorySink{before: func(*corev1.Event) error { return apierrors.NewTooManyRequestsError("later") }}
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
			if got := writersOf(b.stations); !slices.Equal(got, want) {
				t.Fatalf("sinks %v drain, want %v", got, want)
			}
		}
		b.Shutdown()
	})
}

// writersOf returns the numbers of the sinks that have not ended.
func writersOf(s *stations) (out []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.writers {
		out = append(out, w.number)
	}
	slices.Sort(out)
	return out
}

func TestWatcherThatIsStoppedLeavesNoMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewPedanticRegistry()
		o := DefaultOptions()
		o.Registerer = registry
		b := NewRecordBroadcaster(WithOptions(o))
		before, held := metricsOf(t, registry, "record"), len(b.stations.nameHolder.all)
		for range 3 {
			w := b.StartEventWatcher(func(*corev1.Event) {})
			if now := metricsOf(t, registry, "record"); now == before {
				t.Fatal("a watcher has no metrics")
			}
			w.Stop()
			<-w.ResultChan()
			synctest.Wait()
		}
		if now := metricsOf(t, registry, "record"); now != before || len(b.stations.nameHolder.all) != held {
			t.Errorf("%d metrics, %d before any watcher; %d registrations, %d before", now, before, len(b.stations.nameHolder.all), held)
		}
		drain(t, b)
	})
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

// stubborn is a Registerer that unregisters nothing.
type stubborn struct{ prometheus.Registerer }

func (s stubborn) Unregister(prometheus.Collector) bool { return false }

// A broadcaster that was shut down releases its name once.
func TestBroadcasterReleasesItsNameOnce(t *testing.T) {
	registry := stubborn{prometheus.NewPedanticRegistry()}
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

// metricsOf counts the metrics of a broadcaster's name.
func metricsOf(t *testing.T, g prometheus.Gatherer, name string) (n int) {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				if label.GetName() == "broadcaster" && label.GetValue() == name {
					n++
				}
			}
		}
	}
	return n
}

func TestBroadcastersOfOneNameShareARegisterer(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	o := DefaultOptions()
	o.Registerer = registry
	start := func(m *memorySink) *RecordBroadcaster {
		b := NewRecordBroadcaster(WithOptions(o))
		b.StartRecordingToSink(m)
		b.StartEventWatcher(func(*corev1.Event) {})
		b.NewRecorder(scheme.Scheme, source).Event(podIn("ns", "web-0"), "Normal", "Tested", "")
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
		if objects, _ := sinks[i].count(); objects != 1 {
			t.Errorf("broadcaster %d stored %d Events", i, objects)
		}
	}
	if one, two, three := metricsOf(t, registry, "record"), metricsOf(t, registry, "record-2"), metricsOf(t, registry, "record-3"); one == 0 || one != two || three != 0 {
		t.Errorf("%d, %d and %d metrics", one, two, three)
	}
	want := `
# HELP eventd_occurrences_recorded_total Occurrences recorded.
# TYPE eventd_occurrences_recorded_total counter
eventd_occurrences_recorded_total{broadcaster="record",sink=""} 0
eventd_occurrences_recorded_total{broadcaster="record",sink="1"} 1
eventd_occurrences_recorded_total{broadcaster="record-2",sink=""} 0
eventd_occurrences_recorded_total{broadcaster="record-2",sink="1"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "eventd_occurrences_recorded_total"); err != nil {
		t.Error(err)
	}
}

// refusing is a Registerer that registers nothing.
type refusing struct {
	panics bool
}

func (r *refusing) Register(prometheus.Collector) error {
	if r.panics {
		panic("broken registerer")
	}
	return errors.New("no more metrics")
}
func (r *refusing) MustRegister(...prometheus.Collector) { panic("not used") }
func (r *refusing) Unregister(prometheus.Collector) bool { return false }

func TestMetricsThatCannotBeRegisteredCostNoEvents(t *testing.T) {
	occupied := prometheus.NewRegistry()
	occupied.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "eventd_sink_pending_series", Help: "Of another package."}))
	occupied.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "eventd_recorder_repairs_total", Help: "Of another package."}))
	for name, registerer := range map[string]prometheus.Registerer{
		"names in use": occupied,
		"refuses":      &refusing{},
		"panics":       &refusing{panics: true},
	} {
		t.Run(name, func(t *testing.T) {
			o := DefaultOptions()
			o.Registerer = registerer
			m := &memorySink{}
			b := NewRecordBroadcaster(WithOptions(o))
			stop := b.StartRecordingToSink(m)
			b.NewRecorder(scheme.Scheme, source).Event(podIn("ns", "web-0"), "Normal", "Tested", "")
			stop.Stop()
			<-stop.ResultChan()
			b.StartRecordingToSink(m)
			b.NewRecorder(scheme.Scheme, source).Event(podIn("ns", "web-1"), "Normal", "Tested", "")
			drain(t, b)
			if objects, _ := m.count(); objects != 2 {
				t.Errorf("%d Events are stored", objects)
			}
		})
	}
}

// blocking is a Registerer whose Unregister does not return.
type blocking struct {
	prometheus.Registerer
	never chan struct{}
}

func (b *blocking) Unregister(prometheus.Collector) bool { <-b.never; return true }

func TestShutdownDoesNotWaitForARegisterer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		never := make(chan struct{})
		o := DefaultOptions()
		o.Registerer = &blocking{prometheus.NewRegistry(), never}
		b := NewRecordBroadcaster(WithOptions(o))
		stop := b.StartRecordingToSink(&memorySink{})
		watcher := b.StartEventWatcher(func(*corev1.Event) {})
		stop.Stop()
		watcher.Stop()
		wantShutdownInTime(t, b, 0)
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
		w := b.StartRecordingToSink(&discarding{})
		r := b.NewRecorder(scheme.Scheme, source)
		for i := range events {
			r.Event(podIn("ns", fmt.Sprint("web-", i)), "Normal", "Tested", strings.Repeat("m", 1000))
		}
		drain(t, b)
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

// discarding is a sink that stores nothing.
type discarding struct{}

func (*discarding) Create(e *corev1.Event) (*corev1.Event, error)          { return e, nil }
func (*discarding) Update(e *corev1.Event) (*corev1.Event, error)          { return e, nil }
func (*discarding) Patch(e *corev1.Event, _ []byte) (*corev1.Event, error) { return e, nil }
