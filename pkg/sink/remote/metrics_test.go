package remote

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/pkg/ledger"
)

// valuesOf are the values of all metrics, by their name and label; of a histogram the number of values.
func valuesOf(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := make(map[string]float64)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			name := family.GetName()
			for _, label := range m.GetLabel() {
				name += " " + label.GetValue()
			}
			values[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return values
}

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewPedanticRegistry()
		f := newFakeEventd()
		f.before = func(_ context.Context, n int, _ []corev1.Event) error {
			switch n {
			case 1:
				return statusError(429, 0)
			case 2:
				return errors.New("reset")
			}
			return nil
		}
		f.refuse = func(e *corev1.Event) metav1.Status {
			if e.InvolvedObject.Name == "bad" {
				return status(422)
			}
			return metav1.Status{}
		}
		s := newSubject(t, f, func(o *Options) { o.Registerer = registry })
		compare := func(change map[string]float64) {
			t.Helper()
			s.balanced(t)
			want := map[string]float64{
				"eventd_remote_requests_total 200": 0, "eventd_remote_requests_total 429": 0, "eventd_remote_requests_total 503": 0, "eventd_remote_requests_total 0": 0,
				"eventd_remote_events_total 201": 0, "eventd_remote_events_total 202": 0, "eventd_remote_events_total 429": 0, "eventd_remote_events_total 503": 0,
				"eventd_remote_request_duration_seconds": 0, "eventd_remote_retries_total": 0,
				"eventd_remote_pending_events": 0, "eventd_remote_pending_events_capacity": 5120,
				"eventd_remote_pending_bytes": 0, "eventd_remote_pending_bytes_capacity": 8 << 20, "eventd_occurrences_pending sink": 0,
			}
			for name, value := range change {
				want[name] = value
			}
			if diff := cmp.Diff(want, valuesOf(t, registry)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		}
		compare(nil)
		for _, object := range []string{"web", "web", "other", "bad"} {
			s.record("ns", object)
		}
		compare(map[string]float64{"eventd_remote_pending_events": 3, "eventd_remote_pending_bytes": float64(s.pendingBytes()), "eventd_occurrences_pending sink": 4})
		time.Sleep(time.Second)
		compare(map[string]float64{
			"eventd_remote_requests_total 200": 1, "eventd_remote_requests_total 429": 1, "eventd_remote_requests_total 0": 1,
			"eventd_remote_events_total 202": 2, "eventd_remote_events_total 422": 1,
			"eventd_remote_request_duration_seconds": 2, "eventd_remote_retries_total": 2,
		})
		s.close(t, t.Context())
	})
}

func TestMetricsAreRegisteredOnce(t *testing.T) {
	o := DefaultOptions()
	o.Registerer = prometheus.NewRegistry()
	for n := range 2 {
		_, err := New(t.Context(), newFakeEventd(), ledger.New(), o)
		if (err != nil) != (n == 1) {
			t.Error(fmt.Sprint(n, ": ", err))
		}
	}
}
