package main

import (
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

const metricsText = `# TYPE eventd_occurrences_recorded_total counter
eventd_occurrences_recorded_total 12
# TYPE eventd_occurrences_settled_total counter
eventd_occurrences_settled_total{outcome="created",reason=""} 3
eventd_occurrences_settled_total{outcome="merged",reason=""} 4
eventd_occurrences_settled_total{outcome="dropped",reason="queue_full"} 1
eventd_occurrences_settled_total{outcome="dropped",reason="no_sink"} 2
# TYPE eventd_occurrences_pending gauge
eventd_occurrences_pending{station="sink"} 2
eventd_occurrences_pending{station="broadcaster"} 0
# TYPE eventd_sink_requests_total counter
eventd_sink_requests_total{verb="create",code="201"} 3
eventd_sink_requests_total{verb="patch",code="200"} 4
# TYPE eventd_relay_requests_total counter
eventd_relay_requests_total{code="201"} 5
eventd_relay_requests_total{code="202"} 1
# TYPE eventd_election_leading gauge
eventd_election_leading 1
# TYPE another_metric gauge
another_metric 1
`

func TestCountersAreSumsOverReplicas(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(metricsText))
	}))
	defer server.Close()
	replica := &rest.Config{Host: server.URL}
	got, err := meters{replicas: []*rest.Config{replica, replica}, delivery: &delivery{}}.read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := counters{
		recorded: 24, pending: 4, requests: 14, passedOn: 12, leaders: []string{server.URL, server.URL},
		settled: map[string]int64{"created": 6, "merged": 8, "dropped": 6}, receivers: map[string]deliveries{},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	const text = "recorded 24 = created 6 + merged 8 + dropped 6 + pending 4"
	if got.written() != 14 || got.String() != text {
		t.Errorf("%d are written of %q, want 14 of %q", got.written(), got, text)
	}
}

func TestMetricsThatAreRefusedAreAnError(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	if _, err := (meters{replicas: []*rest.Config{{Host: server.URL}}}).read(t.Context()); err == nil || !strings.Contains(err.Error(), server.URL) {
		t.Errorf("got %v", err)
	}
}

func TestBalancedIsWhenEverythingIsSettledOrPending(t *testing.T) {
	created := func(n int64) map[string]int64 { return map[string]int64{"created": n} }
	for name, test := range map[string]struct {
		c    counters
		want bool
	}{
		"nothing yet":                 {counters{}, true},
		"settled":                     {counters{recorded: 3, settled: map[string]int64{"created": 1, "dropped": 2}}, true},
		"pending":                     {counters{recorded: 3, pending: 1, settled: created(2)}, true},
		"settled twice":               {counters{recorded: 3, pending: 1, settled: created(3)}, false},
		"neither settled nor pending": {counters{recorded: 3, settled: created(2)}, false},
	} {
		if got := test.c.balanced(); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
