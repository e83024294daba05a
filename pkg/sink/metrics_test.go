package sink

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	testmetrics "github.com/eventd/eventd/test/metrics"
)

// measured is a bubble whose sink has metrics. want compares some of them.
func measured(t *testing.T, f *fake, change func(*Options), test func(t *testing.T, b *bench, want func(map[string]float64))) {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	register := func(o *Options) {
		o.Registerer = r
		change(o)
	}
	bubble(t, f, register, func(t *testing.T, b *bench) {
		test(t, b, func(want map[string]float64) {
			t.Helper()
			synctest.Wait()
			gathered := testmetrics.Gather(t, r)
			for name, value := range want {
				parts := strings.Fields(name) // and labels
				if got, found := gathered.Lookup("eventd_sink_"+parts[0], parts[1:]...); got != value || !found {
					t.Errorf("%s is %v, want %v", name, got, value)
				}
			}
		})
	})
}

func defaults(*Options) {}

// The duration of failed dials is not a response time of the apiserver.
func TestRequestsWithoutAnswerHaveNoLatency(t *testing.T) {
	r := prometheus.NewRegistry()
	bubble(t, &fake{answer: fail(errUnreachable)}, func(o *Options) { o.Registerer = r }, func(t *testing.T, b *bench) {
		b.record(0)
		pass(time.Minute)
		families, err := r.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				if n := m.GetHistogram().GetSampleCount(); n != 0 {
					t.Errorf("%s counts %d answers of an unreachable apiserver: %v", f.GetName(), n, m.GetLabel())
				}
			}
		}
	})
}

// Series are idle between their writes, and forgotten when there is no place for them.
func TestIdleSeriesAreCounted(t *testing.T) {
	measured(t, &fake{}, func(o *Options) { o.MaxIdleSeries = 8 }, func(t *testing.T, b *bench, want func(map[string]float64)) {
		want(map[string]float64{"idle_series": 0, "idle_series_capacity": 8})
		b.recordEach(5)
		b.flush()
		want(map[string]float64{"idle_series": 5})
		b.recordLater(0, time.Hour) // no longer idle
		want(map[string]float64{"idle_series": 4})
		b.recordEach(20)
		b.flush()
		want(map[string]float64{"idle_series": 8})
	})
}

// How full a sink is can be told from its metrics alone.
func TestLimitsAreMetricsBesideTheUsage(t *testing.T) {
	limits := func(o *Options) {
		o.Concurrency, o.QPS, o.MaxPendingBytes, o.MaxPendingSeries = 7, 50, 1<<20, 30
	}
	measured(t, &fake{answer: hang}, limits, func(t *testing.T, b *bench, want func(map[string]float64)) {
		want(map[string]float64{
			"concurrency_ceiling": 7, "rate_limit": 50, "pending_bytes_capacity": 1 << 20, "pending_series_capacity": 30,
			"pending_bytes": 0,
		})
		b.recordEach(10)
		synctest.Wait()
		if b.total.bytes == 0 {
			t.Error("ten occurrences use no memory")
		}
		want(map[string]float64{"pending_bytes": float64(b.total.bytes), "concurrency_limit": 7})
		b.closeWithin(time.Second)
		want(map[string]float64{"pending_bytes": 0})
	})
}

// A deferred write is old, and not overdue.
func TestAgesOfWhatIsPending(t *testing.T) {
	measured(t, &fake{answer: hang}, defaults, func(t *testing.T, b *bench, want func(map[string]float64)) {
		ages := func(oldest, overdue time.Duration) {
			t.Helper()
			want(map[string]float64{"oldest_pending_seconds": oldest.Seconds(), "overdue_seconds": overdue.Seconds()})
		}
		ages(0, 0)
		b.recordLater(0, time.Hour)
		ages(0, 0)
		b.recordLater(1, time.Second)
		pass(time.Minute)
		ages(time.Minute, 59*time.Second)
		b.recordLater(0, time.Hour)
		pass(time.Hour)
		ages(61*time.Minute, 0) // the retries of the other one are exhausted
		b.closeWithin(time.Second)
		ages(0, 0)
	})
}

func TestDeferredSeriesAreAMetric(t *testing.T) {
	measured(t, &fake{takes: time.Second}, defaults, func(t *testing.T, b *bench, want func(map[string]float64)) {
		series := func(pending, deferred float64) {
			t.Helper()
			want(map[string]float64{"pending_series": pending, "deferred_series": deferred})
		}
		series(0, 0)
		b.recordLater(0, time.Minute)
		b.recordLater(1, time.Hour)
		b.record(2)
		series(3, 2)
		b.recordLater(1, 0)
		series(3, 1)
		b.recordLater(2, time.Minute) // in flight
		pass(2 * time.Second)
		series(2, 2)
		pass(2 * time.Minute)
		series(0, 0)
		b.recordLater(3, time.Hour)
		series(1, 1)
		b.flush()
		series(0, 0)
	})
}

// What one write carries is merged. What is dropped has no latency.
func TestWritesAreMetrics(t *testing.T) {
	f := withRights("create get update")
	measured(t, f, func(o *Options) { o.ForbiddenFor = 0 }, func(t *testing.T, b *bench, want func(map[string]float64)) {
		for range 2 { // a create, and an update since patches are forbidden; a denial is retried once
			b.record(0)
			b.flush()
		}
		for range 3 {
			b.recordLater(0, time.Minute)
		}
		pass(2 * time.Minute)
		f.grant("")
		b.record(1)
		b.flush()
		want(map[string]float64{
			"requests_total verb=create code=201": 1, "requests_total verb=create code=403": 2, "requests_total verb=patch code=403": 2,
			"requests_total verb=get code=200": 2, "requests_total verb=update code=200": 2,
			"requests_failed_total": 4, "requests_failed_total class=refused": 4, "retries_total class=refused": 2, "merged_total": 2,
		})
		for deferred, n := range map[string]uint64{"false": 2, "true": 1} {
			var m dto.Metric
			b.metrics.latency.WithLabelValues(deferred).(prometheus.Histogram).Write(&m)
			if got := m.GetHistogram(); got.GetSampleCount() != n || deferred == "true" && int(got.GetSampleSum()) != 60 {
				t.Errorf("latency, deferred %s: %v", deferred, got)
			}
		}
	})
}
