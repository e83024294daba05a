package trail

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/eventd/eventd/internal/instrument"
)

// register registers the metrics.
func (t *Trail) register(r prometheus.Registerer) error {
	set := instrument.New(r)
	gauge := func(name, help string, read func() float64) {
		set.GaugeFunc(name, help, func() float64 {
			t.mu.Lock()
			defer t.mu.Unlock()
			return read()
		})
	}
	t.evictions = set.Counter("eventd_trail_evictions_total",
		"Objects whose steps have left the memory of the trail, to limit it.")
	gauge("eventd_trail_bytes", "Memory of the steps in the trail.", func() float64 { return float64(t.bytes) })
	gauge("eventd_trail_objects", "Objects in the trail, once for each tenant that reports about them.", func() float64 { return float64(t.traces.Len()) })
	return set.Err()
}
