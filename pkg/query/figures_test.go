package query

import (
	"context"
	"math"
	"reflect"
	"strconv"
	"sync"
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

// sampling has figures sampled until the test ends, in a bubble.
func sampling(t *testing.T, g prometheus.Gatherer) *figures {
	f := newFigures(g)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { f.run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	synctest.Wait()
	return f
}

func (f *figures) mustGet(t *testing.T) *reading {
	t.Helper()
	r, err := f.get()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// These are metrics that answers have: others are not sampled.
const aCounter, aGauge = "eventd_sink_requests_total", "eventd_sink_rate_limit"

func TestRateIsThatOfTheLastSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := prometheus.NewRegistry()
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: aCounter}, []string{"a"})
		limit := prometheus.NewGauge(prometheus.GaugeOpts{Name: aGauge})
		g.MustRegister(c, limit)
		c.WithLabelValues("x").Add(5)
		c.WithLabelValues("never")
		limit.Set(math.Inf(1))
		f := sampling(t, g)
		if got, want := f.mustGet(t).all(aCounter), []v1alpha1.Figure{{Metric: aCounter, Labels: map[string]string{"a": "x"}, Value: 5}}; !reflect.DeepEqual(got, want) {
			t.Errorf("the first reading is %+v", got)
		}
		if got := f.mustGet(t).all(aGauge); got != nil {
			t.Errorf("what JSON does not have is %+v", got)
		}
		time.Sleep(5 * time.Second)
		c.WithLabelValues("x").Add(20)
		c.WithLabelValues("y").Add(5)
		// Nobody has asked for 5 s, and rates are known.
		for label, want := range map[string]float64{"x": 4, "y": 1} {
			if got := f.mustGet(t).one(aCounter, "a", label); got == nil || got.PerSecond == nil || *got.PerSecond != want {
				t.Errorf("%s is %+v", label, got)
			}
		}
		// What was long ago is in no rate.
		time.Sleep(time.Hour)
		if got := f.mustGet(t).one(aCounter, "a", "x"); got.PerSecond == nil || *got.PerSecond != 0 {
			t.Errorf("later, it is %+v", got)
		}
		time.Sleep(2 * time.Second)
		c.Reset()
		c.WithLabelValues("x").Add(1)
		if got := f.mustGet(t).one(aCounter, "a", "x"); got.PerSecond != nil {
			t.Errorf("the rate of a counter that began anew is %v", *got.PerSecond)
		}
	})
}

// Several who ask at different times get the same rates, over some seconds.
func TestRateDoesNotDependOnWhoAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := prometheus.NewRegistry()
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: aCounter})
		g.MustRegister(c)
		f := sampling(t, g)
		for i := range 200 {
			time.Sleep(100 * time.Millisecond)
			c.Add(1)
			got := f.mustGet(t)
			if i < 10 {
				continue // the first second
			}
			rate := got.one(aCounter).PerSecond
			if rate == nil || *rate < 9 || *rate > 11 {
				t.Fatalf("after %d tenths of a second, ten per second are %v", i, rate)
			}
			if over := got.at.Sub(got.before.at); i > 100 && (over < 4*time.Second || over > 6*time.Second) {
				t.Fatalf("the rate is over %s", over)
			}
		}
	})
}

// Rules and receivers are labels: however many there are, an answer is bounded, and has the other metrics.
func TestSamplesOfAMetricAreBounded(t *testing.T) {
	g := prometheus.NewRegistry()
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: aCounter}, []string{"a"})
	limit := prometheus.NewGauge(prometheus.GaugeOpts{Name: aGauge})
	g.MustRegister(c, limit)
	for i := range 2 * maxSamples {
		c.WithLabelValues(strconv.Itoa(i)).Inc()
	}
	r := newFigures(g).mustGet(t)
	if n := len(r.all(aCounter)); n != maxSamples {
		t.Errorf("an answer has %d samples of a metric, want %d", n, maxSamples)
	}
	if n := len(r.all(aGauge)); n != 1 {
		t.Errorf("an answer has %d samples of another metric", n)
	}
}
