package sink

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// A series that is reported all the time is written all the time, which is no
// failure.
func TestSeriesThatIsAlwaysDueHasNotFailed(t *testing.T) {
	for name, retryFor := range map[string]time.Duration{"long": time.Hour, "short": time.Second} {
		t.Run(name, func(t *testing.T) {
			c := newClocked()
			c.takes = 2 * time.Second
			timed(t, c, func(o *Options) { o.RetryFor = retryFor }, func(t *testing.T, b *bench) {
				for range 400 {
					b.record(0)
					time.Sleep(500 * time.Millisecond)
				}
				b.Flush(t.Context())
				if got := b.ledger.Totals(); got.Written() != got.Recorded {
					t.Errorf("dropped %v, though all was taken", got.Dropped)
				}
				for _, class := range []class{classExists, classNotTaken, classLost} {
					if n := testutil.ToFloat64(b.metrics.retries.WithLabelValues(string(class))); n != 0 {
						t.Errorf("%v waits after an answer of class %q", n, class)
					}
				}
			})
		})
	}
}
