package pipeline

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/eventd/eventd/internal/occurrence"
	"github.com/eventd/eventd/pkg/sink"
)

// When a broadcaster is shut down, nothing is left of a sink that was stopped before.
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
				t.Fatal("after the shutdown there are metrics of the sink")
			}
		}
	}
}

// oneCall is a foreign sink whose calls do not return until they are let go.
type oneCall struct {
	running, most int
	release       chan struct{}
}

func (c *oneCall) create(_ context.Context, event *corev1.Event) (*corev1.Event, error) {
	c.running++
	c.most = max(c.most, c.running)
	<-c.release
	c.running--
	return event, nil
}

func (c *oneCall) patch(ctx context.Context, event *corev1.Event, _ []byte) (*corev1.Event, error) {
	return c.create(ctx, event)
}

// A call that has not returned in time is followed by no other call for the same Event,
// or the older one could overwrite what the newer one has stored.
func TestForeignSinkHasOneCallForAnEventAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := &oneCall{release: make(chan struct{})}
		f, err := newForeignSink(calls, sink.DefaultOptions())
		if err != nil {
			t.Fatal(err)
		}
		event := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}}
		ask := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := f.Create(ctx, occurrence.CoreV1, event)
			return err
		}
		for range 3 {
			if err := ask(); err == nil {
				t.Error("a call that does not return is answered")
			}
		}
		if calls.most != 1 {
			t.Errorf("%d calls for one Event at once", calls.most)
		}
		close(calls.release)
		synctest.Wait()
		if err := ask(); err != nil {
			t.Errorf("after the earlier call has returned: %v", err)
		}
	})
}
