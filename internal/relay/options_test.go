package relay_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/eventd/eventd/internal/relay"
	"github.com/eventd/eventd/test/metrics"
)

func TestMetricsOfTheRelayAreThereFromTheStart(t *testing.T) {
	other := newReplica(t, options{})
	got := metrics.Gather(t, other.Registry)
	maps.DeleteFunc(got, func(series string, _ float64) bool { return !strings.HasPrefix(series, "eventd_relay_") })
	want := metrics.Metrics{
		"eventd_relay_parked{}":                           0,
		"eventd_relay_parked_duration_seconds{}":          0,
		"eventd_relay_refused_total{reason=lost}":         0,
		"eventd_relay_refused_total{reason=no_leader}":    0,
		"eventd_relay_refused_total{reason=no_token}":     0,
		"eventd_relay_refused_total{reason=not_leading}":  0,
		"eventd_relay_refused_total{reason=timeout}":      0,
		"eventd_relay_refused_total{reason=unauthorized}": 0,
		"eventd_relay_refused_total{reason=unreachable}":  0,
		"eventd_relay_requests_total{code=200}":           0,
		"eventd_relay_requests_total{code=201}":           0,
		"eventd_relay_requests_total{code=202}":           0,
		"eventd_relay_retries_total{reason=not_leading}":  0,
		"eventd_relay_retries_total{reason=unreachable}":  0,
		"eventd_relay_sessions{}":                         0,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
	if problems, err := testutil.GatherAndLint(other.Registry); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

func TestMetricsOfTheRelayAreRegisteredOnce(t *testing.T) {
	if _, err := relay.New(relay.Options{Reviewer: reviewer(t, nowhere), Registerer: newReplica(t, options{}).Registry}); err == nil {
		t.Error("registered twice")
	}
}
