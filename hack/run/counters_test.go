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

func TestCountersAreReadFromMetrics(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path != "/metrics" {
			http.NotFound(w, req)
			return
		}
		_, _ = w.Write([]byte(metricsText))
	}))
	defer server.Close()
	meter, err := newMeter(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	got, err := meter.read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := counters{
		recorded: 12, pending: 2, requests: 7, passedOn: 6, leaders: []string{server.URL},
		settled: map[string]int64{"created": 3, "merged": 4, "dropped": 3},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got.written() != 7 {
		t.Errorf("written: %d", got.written())
	}
	if text, want := got.String(), "recorded 12 = created 3 + merged 4 + dropped 3 + pending 2"; text != want {
		t.Errorf("got %q, want %q", text, want)
	}
}

func TestCountersOfReplicasAddUp(t *testing.T) {
	sum := counters{settled: map[string]int64{"created": 1, "merged": 2}, recorded: 4, pending: 1, requests: 3}
	sum.add(counters{settled: map[string]int64{"created": 1, "dropped": 1}, recorded: 2, passedOn: 9, requests: 1, leaders: []string{"b"}})
	want := counters{
		settled:  map[string]int64{"created": 2, "merged": 2, "dropped": 1},
		recorded: 6, pending: 1, requests: 4, passedOn: 9, leaders: []string{"b"},
	}
	if !reflect.DeepEqual(sum, want) {
		t.Errorf("got %+v, want %+v", sum, want)
	}
}

func TestMetricsThatAreRefusedAreAnError(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "no", http.StatusForbidden)
	}))
	defer server.Close()
	meter, err := newMeter(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := meter.read(t.Context()); err == nil || !strings.Contains(err.Error(), "403") {
		t.Errorf("got %v", err)
	}
}

func TestQuietIsWhenEverythingHasSettled(t *testing.T) {
	for _, test := range []struct {
		name string
		c    counters
		want bool
	}{
		{"nothing yet", counters{}, true},
		{"settled", counters{recorded: 3, settled: map[string]int64{"created": 1, "dropped": 2}}, true},
		{"pending", counters{recorded: 3, pending: 1, settled: map[string]int64{"created": 2}}, false},
		{"neither settled nor pending", counters{recorded: 3, settled: map[string]int64{"created": 2}}, false},
	} {
		if got := test.c.quiet(); got != test.want {
			t.Errorf("%s: %v", test.name, got)
		}
	}
}
