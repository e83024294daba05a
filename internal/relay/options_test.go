package relay_test

import (
	"maps"
	"strings"
	"testing"
	"time"

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

func TestRelayOptionsAreChecked(t *testing.T) {
	valid := relay.DefaultOptions()
	valid.Gate, valid.TokenFile, valid.Audience, valid.Reviewer = relay.NewGate(always, time.Hour), "token", peerAudience, reviewer(t, nowhere)
	if _, err := relay.New(valid); err != nil {
		t.Fatal(err)
	}
	for want, spoil := range map[string]func(*relay.Options){
		"Gate is required":         func(o *relay.Options) { o.Gate = nil },
		"TokenFile is required":    func(o *relay.Options) { o.TokenFile = "" },
		"Audience is required":     func(o *relay.Options) { o.Audience = "" },
		"Reviewer is required":     func(o *relay.Options) { o.Reviewer = nil },
		"LeaderWait must be":       func(o *relay.Options) { o.LeaderWait = 0 },
		"UnreachableAfter must be": func(o *relay.Options) { o.UnreachableAfter = 0 },
		"MaxInFlight must be":      func(o *relay.Options) { o.MaxInFlight = 0 },
	} {
		o := valid
		spoil(&o)
		if _, err := relay.New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v", want, err)
		}
	}
	valid.Registerer = newReplica(t, options{}).Registry
	if _, err := relay.New(valid); err == nil {
		t.Error("registered twice")
	}
}
