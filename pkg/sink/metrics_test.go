package sink

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/pkg/sink/internal/apiclient"
)

// The time that the apiserver took to answer is not that in which it did not.
func TestRequestsWithoutAnswerHaveNoLatency(t *testing.T) {
	r := prometheus.NewRegistry()
	c := scripted(func(context.Context, apiclient.Verb) (*corev1.Event, error) {
		return nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	})
	bubble(t, c, func(o *Options) { o.Registerer = r }, func(t *testing.T, b *bench) {
		b.record(0)
		pass(time.Minute)
		families, err := r.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() != "eventd_sink_request_duration_seconds" {
				continue
			}
			for _, m := range f.GetMetric() {
				if n := m.GetHistogram().GetSampleCount(); n != 0 {
					t.Errorf("%d answers of an apiserver that is away: %v", n, m.GetLabel())
				}
			}
		}
		closeSoon(t, b)
	})
}

// How full a sink is can be told from its metrics alone.
func TestLimitsStandBesideWhatTheyBound(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	c := scripted(hang)
	bubble(t, c, func(o *Options) {
		o.Registerer = r
		o.Concurrency, o.QPS, o.MaxPendingBytes, o.MaxPendingSeries = 7, 50, 1<<20, 30
	}, func(t *testing.T, b *bench) {
		want := `# HELP eventd_sink_concurrency_ceiling Upper bound of the concurrency limit.
# TYPE eventd_sink_concurrency_ceiling gauge
eventd_sink_concurrency_ceiling 7
# HELP eventd_sink_pending_bytes_capacity Maximum memory of pending occurrences. Above it, occurrences are dropped.
# TYPE eventd_sink_pending_bytes_capacity gauge
eventd_sink_pending_bytes_capacity 1.048576e+06
# HELP eventd_sink_pending_series_capacity Maximum number of pending series.
# TYPE eventd_sink_pending_series_capacity gauge
eventd_sink_pending_series_capacity 30
# HELP eventd_sink_rate_limit Rate limit of requests to the apiserver, per second; +Inf if unlimited.
# TYPE eventd_sink_rate_limit gauge
eventd_sink_rate_limit 50
`
		if err := testutil.GatherAndCompare(r, strings.NewReader(want), "eventd_sink_concurrency_ceiling",
			"eventd_sink_pending_bytes_capacity", "eventd_sink_pending_series_capacity", "eventd_sink_rate_limit"); err != nil {
			t.Error(err)
		}
		if n := gauge(t, r, "eventd_sink_pending_bytes"); n != 0 {
			t.Errorf("%v bytes are pending, and nothing is", n)
		}
		for i := range 10 {
			b.record(i)
		}
		synctest.Wait()
		if got := gauge(t, r, "eventd_sink_pending_bytes"); got != float64(b.total.bytes) || got == 0 {
			t.Errorf("%v bytes are pending, of the %d that are held", got, b.total.bytes)
		}
		closeSoon(t, b)
		if n := gauge(t, r, "eventd_sink_pending_bytes"); n != 0 {
			t.Errorf("%v bytes are pending when all has settled", n)
		}
	})
}

// What was put off is old, and not late.
func TestAgesOfWhatIsPending(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	bubble(t, scripted(hang), func(o *Options) { o.Registerer = r }, func(t *testing.T, b *bench) {
		want := func(oldest, overdue time.Duration) {
			t.Helper()
			if got := gauge(t, r, "eventd_sink_oldest_pending_seconds"); got != oldest.Seconds() {
				t.Errorf("the oldest is %v s old, want %s", got, oldest)
			}
			if got := gauge(t, r, "eventd_sink_overdue_seconds"); got != overdue.Seconds() {
				t.Errorf("the latest is %v s overdue, want %s", got, overdue)
			}
		}
		want(0, 0)
		b.recordLater(0, time.Hour)
		b.recordLater(1, time.Second)
		pass(time.Minute)
		want(time.Minute, 59*time.Second)
		b.recordLater(0, time.Hour)
		pass(time.Hour)
		want(61*time.Minute, 0) // the other one is given up by now
		closeSoon(t, b)
		want(0, 0)
	})
}
