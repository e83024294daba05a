package instrument

import (
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestMetricsAreRegisteredOnce(t *testing.T) {
	registry := prometheus.NewRegistry()
	for _, c := range []struct {
		with  prometheus.Registerer
		taken bool
	}{{registry, false}, {registry, true}, {nil, false}} {
		set := New(c.with)
		set.Counter("counter", "")
		set.CounterVec("counters", "", "label").WithLabelValues("a")
		set.Gauge("gauge", "")
		set.GaugeVec("gauges", "", "label").WithLabelValues("a")
		set.Histogram("histogram", "", nil)
		set.HistogramVec("histograms", "", nil, "label").WithLabelValues("a")
		for _, part := range []string{"a", "b"} {
			set.With(prometheus.Labels{"part": part}).GaugeFunc("parts", "", func() float64 { return 1 })
		}
		var taken prometheus.AlreadyRegisteredError
		if err := set.Err(); errors.As(err, &taken) != c.taken || !c.taken && err != nil {
			t.Errorf("%v: %v", c, err)
		}
	}
	if n, err := testutil.GatherAndCount(registry); n != 8 || err != nil {
		t.Errorf("%d metrics, %v", n, err)
	}
}
