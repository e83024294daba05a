package trail

import "github.com/prometheus/client_golang/prometheus"

// register registers the metrics.
func (t *Trail) register(r prometheus.Registerer) error {
	if r == nil {
		return nil
	}
	gauge := func(name, help string, read func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
			t.mu.Lock()
			defer t.mu.Unlock()
			return read()
		})
	}
	t.evictions = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "eventd_trail_evictions_total",
		Help: "Objects whose steps have left the memory of the trail, to limit it.",
	})
	for _, c := range []prometheus.Collector{
		gauge("eventd_trail_bytes", "Memory of the steps in the trail.", func() float64 { return float64(t.bytes) }),
		gauge("eventd_trail_objects", "Objects in the trail, once for each tenant that reports about them.", func() float64 { return float64(t.traces.Len()) }),
		t.evictions,
	} {
		if err := r.Register(c); err != nil {
			return err
		}
	}
	return nil
}
