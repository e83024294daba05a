package sink

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
)

// The time that the apiserver took to answer is not that in which it did not.
func TestRequestsWithoutAnswerHaveNoLatency(t *testing.T) {
	r := prometheus.NewRegistry()
	c := scripted(func(context.Context, verb) (*corev1.Event, error) {
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
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		b.Close(ctx)
	})
}
