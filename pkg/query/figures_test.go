package query

import (
	"math"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/eventd/eventd/pkg/query/v1alpha1"
)

// countingGatherer counts how often the metrics are read.
type countingGatherer struct {
	*prometheus.Registry
	reads int
}

func (g *countingGatherer) Gather() ([]*dto.MetricFamily, error) {
	g.reads++
	return g.Registry.Gather()
}

func TestFiguresAreReadOnceASecondForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &countingGatherer{Registry: prometheus.NewRegistry()}
		f := newFigures(g)
		for range 100 {
			if _, err := f.get(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(50 * time.Millisecond)
		}
		if g.reads != 5 {
			t.Errorf("in five seconds they were read %d times", g.reads)
		}
	})
}

func TestRateIsThatSinceTheReadingBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := prometheus.NewRegistry()
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "c_total"}, []string{"a"})
		limit := prometheus.NewGauge(prometheus.GaugeOpts{Name: "limit"})
		g.MustRegister(c, limit)
		f := newFigures(g)
		read := func() *reading {
			r, err := f.get()
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		c.WithLabelValues("x").Add(5)
		c.WithLabelValues("never")
		limit.Set(math.Inf(1))
		if got, want := read().all("c_total"), []v1alpha1.Figure{{Metric: "c_total", Labels: map[string]string{"a": "x"}, Value: 5}}; !reflect.DeepEqual(got, want) {
			t.Errorf("the first reading is %+v", got)
		}
		if got := read().all("limit"); got != nil {
			t.Errorf("what JSON does not have is %+v", got)
		}
		time.Sleep(2 * time.Second)
		c.WithLabelValues("x").Add(8)
		c.WithLabelValues("y").Add(2)
		for label, want := range map[string]float64{"x": 4, "y": 1} {
			if got := read().one("c_total", "a", label); got == nil || got.PerSecond == nil || *got.PerSecond != want {
				t.Errorf("%s is %+v", label, got)
			}
		}
		time.Sleep(2 * time.Second)
		c.Reset()
		c.WithLabelValues("x").Add(1)
		if got := read().one("c_total", "a", "x"); got.PerSecond != nil {
			t.Errorf("the rate of a counter that began anew is %v", *got.PerSecond)
		}
		time.Sleep(time.Hour)
		if got := read().one("c_total", "a", "x"); got.PerSecond != nil {
			t.Errorf("the rate over an hour is %v", *got.PerSecond)
		}
	})
}
