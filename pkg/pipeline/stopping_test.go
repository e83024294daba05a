package pipeline

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/kubernetes/scheme"
)

// After the shutdown, nothing is left of a sink that was stopped before.
func TestShutdownWaitsForSinksThatAreBeingStopped(t *testing.T) {
	for range 50 {
		registry := prometheus.NewPedanticRegistry()
		o := DefaultOptions()
		o.Registerer = registry
		b := NewRecordBroadcaster(WithOptions(o))
		stopped := b.StartRecordingToSink(&memorySink{})
		b.NewRecorder(scheme.Scheme, source).Event(podIn("ns", "web-0"), "Normal", "Tested", "")
		stopped.Stop()
		drain(t, b)
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, family := range families {
			if family.GetName() == "eventd_sink_requests_total" {
				t.Fatal("the sink still has metrics")
			}
		}
	}
}
