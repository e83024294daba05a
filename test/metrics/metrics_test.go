package metrics

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func TestSumHasTheSeriesWithAllLabels(t *testing.T) {
	registry := prometheus.NewRegistry()
	settled := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "settled_total"}, []string{"outcome", "reason"})
	pending := prometheus.NewGauge(prometheus.GaugeOpts{Name: "pending"})
	registry.MustRegister(settled, pending)
	settled.WithLabelValues("dropped", "queue_full").Add(1)
	settled.WithLabelValues("dropped", "no_sink").Add(2)
	settled.WithLabelValues("created", "").Add(4)
	pending.Set(8)
	m := Gather(t, registry)
	for _, test := range []struct {
		name   string
		labels []string
		want   float64
		found  bool
	}{
		{"settled_total", nil, 7, true},
		{"settled_total", []string{"outcome=dropped"}, 3, true},
		{"settled_total", []string{"outcome=dropped", "reason=no_sink"}, 2, true},
		{"settled_total", []string{"reason="}, 4, true},
		{"settled_total", []string{"outcome=drop"}, 0, false},
		{"pending", nil, 8, true},
		{"settled", nil, 0, false},
	} {
		if got, found := m.Lookup(test.name, test.labels...); got != test.want || found != test.found || m.Sum(test.name, test.labels...) != got {
			t.Errorf("%s %q: %v, %t; want %v, %t", test.name, test.labels, got, found, test.want, test.found)
		}
	}
}
