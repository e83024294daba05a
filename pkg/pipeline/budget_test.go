package pipeline

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/eventd/eventd/pkg/occurrence"
)

// k/k#97367, client-go#908, kubernetes/autoscaler#4328: client-go makes 25 writes
// of these 1,000 and leaves the count at 25.
func TestCountIsTrueSoonAfterAStormAtNoMoreWritesThanClientGo(t *testing.T) {
	for _, series := range []int{1, 10} { // of one object
		synctest.Test(t, func(t *testing.T) {
			m := &memorySink{}
			b, r := recordTo(m)
			for i := range 1000 {
				r.Event(podIn("ns", "web-0"), "Warning", fmt.Sprint("Reason", i%series), "message")
				time.Sleep(5 * time.Millisecond)
			}
			time.Sleep(30 * time.Second)
			synctest.Wait()
			m.want(t, series, 1000)
			if m.calls > 25 {
				t.Errorf("%d writes", m.calls)
			}
			drain(t, b)
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
		synctest.Wait()
		before := len(m.stored())
		r.Event(podIn("ns", "web-0"), "Warning", "Rare", "it matters")
		synctest.Wait()
		if len(m.stored()) != before+1 {
			t.Error("the rare reason is not written at once")
		}
		if totals := drain(t, b); totals.Written() != noise+1 {
			t.Errorf("ledger %+v", totals)
		}
		m.want(t, 9+1+1, noise+1)
	})
}

// k/k#103918: the series of an object share the refill, however often one of them occurs.
func TestNoisySeriesLeavesTokensForItsSibling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memorySink{}
		b, r := recordTo(m)
		var rare int64
		for second := range 4 * 3600 {
			r.Event(podIn("ns", "web-0"), "Warning", "Noisy", "")
			if second%20 == 5 {
				r.Event(podIn("ns", "web-0"), "Warning", "Rare", "")
				rare++
			}
			time.Sleep(time.Second)
		}
		synctest.Wait()
		for _, e := range m.stored() {
			if behind := rare - int64(e.Count); e.Reason == "Rare" && behind > 60 { // 20 minutes
				t.Errorf("of %d, %d are stored", rare, e.Count)
			}
		}
		drain(t, b)
	})
}

// Subjects without tokens may fill the sink with writes that wait for hours. Other subjects
// are not affected.
func TestSpentBudgetsDoNotAffectOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memorySink{}
		b, r := recordTo(m, with(func(o *Options) { o.Sink.MaxPendingSeries = 500 }))
		for object := range 20 {
			for reason := range 89 {
				r.Event(podIn("noisy", fmt.Sprint("web-", object)), "Normal", fmt.Sprint("Reason", reason), "")
			}
			time.Sleep(time.Second)
		}
		if ledgers(b)[0].Dropped[occurrence.PendingFull] == 0 {
			t.Fatal("the sink is not full")
		}
		before := len(m.stored())
		const quiet = 100
		for i := range quiet {
			r.Event(podIn("quiet", fmt.Sprint("web-", i)), []string{"Warning", "Normal"}[i%2], "Important", "")
		}
		synctest.Wait()
		if written := len(m.stored()) - before; written != quiet {
			t.Errorf("%d of %d first Events of others are stored", written, quiet)
		}
		drain(t, b)
	})
}

// Every field of client-go's options has its meaning there.
func TestCorrelatorOptionsOfClientGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memorySink{}
		clock := testingclock.NewFakePassiveClock(time.Unix(1, 0))
		b, r := recordTo(m, WithCorrelatorOptions(record.CorrelatorOptions{
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
		if got := b.stages.options.Correlator; got.CacheSize != 10 || got.Interval != time.Minute {
			t.Errorf("correlator options %+v", got)
		}
		for i := range 5 {
			r.Event(podIn("ns", fmt.Sprint("web-", i)), "Warning", "Tested", "message")
		}
		r.Event(podIn("ns", "web-9"), "Warning", "One", "message")
		r.Event(podIn("ns", "web-9"), "Warning", "Two", "message")
		synctest.Wait()
		if n := len(m.stored()); n != 3 { // the fourth token is for the final count of the combined Event
			t.Errorf("%d Events", n)
		}
		clock.SetTime(clock.Now().Add(61 * time.Second))
		r.Event(podIn("ns", "web-8"), "Warning", "Tested", "message")
		drain(t, b)
		m.want(t, 6, 8)
		for _, e := range m.stored() {
			if combined := e.Count == 3; combined != (e.Message == "many pods, the last being web-4") {
				t.Errorf("stored %q with a count of %d", e.Message, e.Count)
			}
		}
	})
}
