package pipeline

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"

	"github.com/eventd/eventd/pkg/ledger"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/test/await"
)

// k/k#134993: Events of one object at the same instant have different names.
func TestWatchersSeeTheNamesThatAreStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // where the clock does not advance
		m := newMemoryServer(0, faults{})
		const distinct = 100
		b, r := recordTo(&passing{m}, WithCorrelatorOptions(record.CorrelatorOptions{BurstSize: 2 * distinct, MaxEvents: 2 * distinct}))
		seen := make(map[string]string)
		b.StartEventWatcher(func(e *corev1.Event) {
			seen[e.Name] = e.Message
			e.Annotations["k"] = "changed by the handler"
		})
		for i := range distinct {
			r.AnnotatedEventf(podIn("ns", "web-0"), map[string]string{"k": "v"}, "Normal", "Tested", "message %d", i)
		}
		drain(t, b)
		if len(seen) != distinct || len(m.events) != distinct {
			t.Fatalf("%d seen, %d stored", len(seen), len(m.events))
		}
		for name, e := range m.events {
			if seen[name] != e.Message || e.Annotations["k"] != "v" {
				t.Errorf("stored %q, seen %q", e.Message, seen[name])
			}
		}
	})
}

func TestLogging(t *testing.T) {
	b := NewRecordBroadcaster()
	var lines []string
	w := b.StartLogging(func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) })
	b.StartStructuredLogging(10)
	r := b.NewRecorder(scheme.Scheme, source)
	r.Event(podIn("ns", "web-0"), "Warning", "BackOff", "again")
	w.Stop()
	for range w.ResultChan() {
		t.Error("the channel delivers")
	}
	r.Event(podIn("ns", "web-0"), "Warning", "BackOff", "after the stop")
	drain(t, b)
	if len(lines) != 1 || !strings.HasSuffix(lines[0], "type: 'Warning' reason: 'BackOff' again") {
		t.Errorf("logged %q", lines)
	}
}

// k/k#68393: drops are counted, for every sink.
func TestEverySinkHasItsOwnLedgerAndMetrics(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	first, second := &memorySink{}, &memorySink{}
	b, r := recordTo(first, withMetrics(registry))
	other := NewEventsBroadcaster(nil, withMetrics(registry))
	stop := b.StartRecordingToSink(second)
	b.StartEventWatcher(func(*corev1.Event) { panic("handler") })
	r.Event(podIn("ns", "web-0"), "Normal", "Tested", "")
	r.Event(nil, "Normal", "Tested", "")
	stop.Stop()
	<-stop.ResultChan()
	r.Event(podIn("ns", "web-0"), "Normal", "Tested", "")
	drain(t, b)
	drain(t, other)
	first.want(t, 1, 2)
	second.want(t, 1, 1)
	await.Until(t, "the metrics of the stopped sink go", func() bool { return metricsWith(t, registry, "sink=2") == 0 })
	wantSeries(t, registry, "eventd_broadcaster_panics_total", map[string]float64{
		"broadcaster=record,sink=,subscriber=watcher-1": 2, "broadcaster=record,sink=1,subscriber=sink": 0,
	})
	wantSeries(t, registry, "eventd_occurrences_recorded_total", map[string]float64{
		"broadcaster=events,sink=": 0, "broadcaster=record,sink=": 0, "broadcaster=record,sink=1": 3,
	})
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("metrics: %v %v", problems, err)
	}
}

// k/k#108518, controller-runtime#1367: recording, starting, stopping and shutting down
// concurrently neither panics nor leaks, and everything is counted.
func TestEverythingAtOnce(t *testing.T) {
	m := &memorySink{}
	b, _ := recordTo(m)
	var l *ledger.Ledger // of the sink that is not stopped
	for w := range b.stages.writers {
		l = w.ledger
	}
	var all sync.WaitGroup
	for i := range 4 {
		r := b.NewRecorder(scheme.Scheme, source)
		all.Go(func() {
			for j := range 500 {
				r.Eventf(podIn("ns", fmt.Sprint("web-", j%10)), "Normal", "Tested", "%d", i)
			}
		})
		all.Go(func() {
			for range 20 {
				w := b.StartEventWatcher(func(*corev1.Event) {})
				s := b.StartRecordingToSink(&memorySink{})
				w.Stop()
				s.Stop()
				s.Stop()
			}
		})
	}
	all.Go(b.Shutdown)
	all.Go(func() {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var left *UndeliveredError // of stopped sinks: no more than maxDrains drain
		if err := b.ShutdownWithContext(ctx); err != nil && (!errors.As(err, &left) || left.Cause != nil) {
			t.Error(err)
		}
	})
	all.Wait()
	b.Shutdown()
	settled(t, b)
	sum := sumOf(m.stored())
	if totals := l.Totals(); totals.Recorded != 2000 || totals.Pending() != 0 || totals.Written() != sum {
		t.Errorf("ledger %+v, a count of %d is stored", totals, sum)
	}
}

func TestBeforeTheStartAndAfterTheShutdown(t *testing.T) {
	b := NewRecordBroadcaster()
	r := b.NewRecorder(scheme.Scheme, source)
	r.Event(podIn("ns", "web-0"), "Normal", "Early", "")
	b.Shutdown()
	r.Event(podIn("ns", "web-0"), "Normal", "Late", "")
	for _, w := range []interface{ Stop() }{b.StartRecordingToSink(&memorySink{}), b.StartEventWatcher(nil), b.StartLogging(nil), b.StartStructuredLogging(0)} {
		w.Stop()
	}
	totals := b.stages.noSink.Totals()
	if totals.Dropped[occurrence.NoSink] != 1 || totals.Dropped[occurrence.Shutdown] != 1 || totals.Pending() != 0 {
		t.Errorf("ledger %+v", totals)
	}
}

func TestTheEndOfTheContextShutsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		m := &memorySink{}
		b := NewRecordBroadcaster(WithContext(ctx))
		w := b.StartRecordingToSink(m)
		b.NewRecorder(scheme.Scheme, source).Event(podIn("ns", "web-0"), "Normal", "Tested", "")
		cancel()
		<-w.ResultChan()
		m.want(t, 1, 1)
	})
}

func TestHandlerThatHangsIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewRecordBroadcaster()
		release := make(chan struct{})
		b.StartEventWatcher(func(*corev1.Event) { <-release })
		b.NewRecorder(scheme.Scheme, source).Event(podIn("ns", "web-0"), "Normal", "Tested", "")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := b.ShutdownWithContext(ctx)
		if undelivered, ok := err.(*UndeliveredError); !ok || undelivered.Watchers != 1 || undelivered.Cause == nil {
			t.Errorf("error %v", err)
		}
		close(release)
		b.Shutdown()
	})
}

// brittle is a runtime.Object whose methods panic.
type brittle struct{ runtime.Object }

func TestRecordingNeverPanics(t *testing.T) {
	b := NewRecordBroadcaster()
	b.NewRecorder(nil, source).Event(brittle{}, "Normal", "Tested", "")
	b.NewEventsRecorder(nil, "").Eventf(brittle{}, brittle{}, "Normal", "", "", "%s")
	b.Shutdown()
	if totals := b.stages.noSink.Totals(); totals.Dropped[occurrence.Malformed] != 2 {
		t.Errorf("ledger %+v", totals)
	}
}
