package relay_test

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/eventd/eventd/internal/relay"
)

func TestMetricsOfTheRelayAreThereFromTheStart(t *testing.T) {
	other := standby(t)
	want := `# HELP eventd_relay_parked Requests waiting for a leader.
# TYPE eventd_relay_parked gauge
eventd_relay_parked 0
# HELP eventd_relay_refused_total Requests that this replica answered 503, or 504 (timeout), instead of the leader, by reason.
# TYPE eventd_relay_refused_total counter
eventd_relay_refused_total{reason="lost"} 0
eventd_relay_refused_total{reason="no_leader"} 0
eventd_relay_refused_total{reason="no_token"} 0
eventd_relay_refused_total{reason="not_leading"} 0
eventd_relay_refused_total{reason="timeout"} 0
eventd_relay_refused_total{reason="unauthorized"} 0
eventd_relay_refused_total{reason="unreachable"} 0
# HELP eventd_relay_requests_total Forwarded requests that the leader answered, by HTTP status code.
# TYPE eventd_relay_requests_total counter
eventd_relay_requests_total{code="200"} 0
eventd_relay_requests_total{code="201"} 0
eventd_relay_requests_total{code="202"} 0
# HELP eventd_relay_retries_total Forwarding attempts without effect, by reason. The request waits for a leader.
# TYPE eventd_relay_retries_total counter
eventd_relay_retries_total{reason="not_leading"} 0
eventd_relay_retries_total{reason="unreachable"} 0
`
	if err := testutil.GatherAndCompare(other.registry, strings.NewReader(want),
		"eventd_relay_parked", "eventd_relay_refused_total", "eventd_relay_requests_total", "eventd_relay_retries_total"); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.GatherAndLint(other.registry); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

func TestRelayOptionsAreChecked(t *testing.T) {
	valid := relay.DefaultOptions()
	valid.Gate, valid.TokenFile, valid.Audience, valid.Reviewer = relay.NewGate(always, time.Hour), "token", peerAudience, reviewer(t, "http://127.0.0.1:1")
	if r, err := relay.New(valid); err != nil {
		t.Fatal(err)
	} else {
		r.Close()
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
	registered := standby(t)
	valid.Registerer = registered.registry
	if _, err := relay.New(valid); err == nil {
		t.Error("registered twice")
	}
}
