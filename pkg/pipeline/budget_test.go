package pipeline

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"
	testingclock "k8s.io/utils/clock/testing"
)

// k/k#97367, client-go#908, kubernetes/autoscaler#4328: client-go makes 25 writes
// of these 1,000 and leaves the count at 25.
func TestCountIsTrueSoonAfterAStormAtNoMoreWritesThanClientGo(t *testing.T) {
	for name, series := range map[string]int{"one series": 1, "ten series of one object": 10} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := &memorySink{}
				b, r := recordTo(m)
				for i := range 1000 {
					r.Event(podIn("ns", "web-0"), "Warning", fmt.Sprint("Reason", i%series), "message")
					time.Sleep(5 * time.Millisecond)
				}
				time.Sleep(30 * time.Second)
				synctest.Wait()
				if objects, sum := m.count(); objects != series || sum != 1000 {
					t.Errorf("%d Events with a count of %d are stored after 30 s", objects, sum)
				}
				if m.calls > 25 {
					t.Errorf("%d writes", m.calls)
				}
				drain(t, b)
			})
		})
	}
}

// k/k#103918, k/k#75106: a noisy reason does not delay the others of an object. k/k#27858:
// what waits for the budget is written at the shutdown.
func TestNoisyReasonSilencesNoOtherAndLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memorySink{}
		b, r := recordTo(m)
		const noise = 5000
		for i := range noise {
			r.Eventf(podIn("ns", "web-0"), "Warning", "Noisy", "attempt %d failed", i)
			time.Sleep(time.Millisecond)
		}
		r.Event(podIn("ns", "web-0"), "Warning", "Rare", "it matters")
		synctest.Wait()
		m.mu.Lock()
		written := false
		for _, e := range m.events {
			written = written || e.Reason == "Rare"
		}
		m.mu.Unlock()
		if !written {
			t.Error("the rare reason is not written at once")
		}
		drain(t, b)
		if objects, sum := m.count(); objects != 9+1+1 || sum != noise+1 {
			t.Errorf("%d Events with a count of %d are stored", objects, sum)
		}
		if totals := ledgers(b.stations)[0]; totals.Pending() != 0 || totals.Written() != noise+1 {
			t.Errorf("ledger %+v", totals)
		}
	})
}

// Every field of client-go's options has its meaning there.
func TestCorrelatorOptionsOfClientGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memorySink{}
		clock := testingclock.NewFakePassiveClock(time.Unix(1, 0))
		b := NewRecordBroadcaster(WithCorrelatorOptions(record.CorrelatorOptions{
			LRUCacheSize:         10,
			BurstSize:            4,
			QPS:                  1. / 10,
			KeyFunc:              func(e *corev1.Event) (string, string) { return e.Reason, e.InvolvedObject.Name },
			MessageFunc:          func(e *corev1.Event) string { return "many pods, the last being " + e.InvolvedObject.Name },
			MaxEvents:            3,
			MaxIntervalInSeconds: 60,
			Clock:                clock,
			SpamKeyFunc:          func(e *corev1.Event) string { return e.Source.Component },
		}))
		b.StartRecordingToSink(m)
		r := b.NewRecorder(scheme.Scheme, source)
		for i := range 5 {
			r.Event(podIn("ns", fmt.Sprint("web-", i)), "Warning", "Tested", "message")
		}
		r.Event(podIn("ns", "web-9"), "Warning", "One", "message")
		r.Event(podIn("ns", "web-9"), "Warning", "Two", "message")
		synctest.Wait()
		if objects, _ := m.count(); objects != 3 {
			// The fourth token is for the final count of the combined Event.
			t.Errorf("%d Events", objects)
		}
		clock.SetTime(clock.Now().Add(61 * time.Second))
		r.Event(podIn("ns", "web-8"), "Warning", "Tested", "message")
		drain(t, b)
		objects, sum := m.count()
		if objects != 6 || sum != 8 {
			t.Errorf("%d Events with a count of %d", objects, sum)
		}
		for _, e := range m.events {
			if combined := e.Count == 3; combined != (e.Message == "many pods, the last being web-4") {
				t.Errorf("stored %q with a count of %d", e.Message, e.Count)
			}
		}
	})
}

// k/k#112365: too many notes of new-style Events are combined; client-go discards them.
func TestNotesOfNewStyleEventsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memorySink{}
		b := NewRecordBroadcaster()
		b.StartRecordingToSink(m)
		r := b.NewEventsRecorder(scheme.Scheme, "example.com/controller")
		for i := range 100 {
			r.Eventf(podIn("ns", "web-0"), nil, "Warning", "Tested", "Testing", "note %d", i)
		}
		drain(t, b)
		if objects, sum := m.count(); objects != 10 || sum != 100 {
			t.Errorf("%d Events with a count of %d", objects, sum)
		}
	})
}
