package soak

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/eventd/eventd/pkg/ledger"
	"github.com/eventd/eventd/pkg/occurrence"
)

// metrics are the counters and gauges of a registry, by name and labels, such as
// eventd_sink_requests_total{code=201,verb=create}, and their sums by name.
type metrics map[string]float64

func gather(t *testing.T, g prometheus.Gatherer) metrics {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Error(err)
	}
	out := metrics{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string // Gather sorts them
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			value := m.GetCounter().GetValue() + m.GetGauge().GetValue()
			out[f.GetName()] += value
			if len(labels) > 0 {
				out[f.GetName()+"{"+strings.Join(labels, ",")+"}"] = value
			}
		}
	}
	return out
}

// written is the number of requests that wrote something.
func (m metrics) written() float64 {
	return m["eventd_sink_requests_total{code=201,verb=create}"] + m["eventd_sink_requests_total{code=200,verb=patch}"]
}

// wantAllWritten checks that all that was recorded is written, that the stations
// hold nothing, and that the metrics say what the ledger says.
func wantAllWritten(t *testing.T, totals ledger.Totals, g prometheus.Gatherer) {
	t.Helper()
	if totals.Written() != totals.Recorded || totals.Pending() != 0 {
		t.Errorf("recorded %d, settled as %v, dropped %v", totals.Recorded, totals.Outcomes, totals.Dropped)
	}
	m := gather(t, g)
	want := func(name string, n int64) {
		t.Helper()
		if got, ok := m[name]; !ok || got != float64(n) {
			t.Errorf("%s is %v, and in the ledger %d", name, got, n)
		}
	}
	const settled = "eventd_occurrences_settled_total"
	want("eventd_occurrences_recorded_total", totals.Recorded)
	want("eventd_occurrences_pending", 0)
	want(settled, totals.Settled())
	for _, outcome := range occurrence.Outcomes {
		if outcome != occurrence.Dropped {
			want(settled+"{outcome="+string(outcome)+",reason=}", totals.Outcomes[outcome])
		}
	}
	for _, reason := range occurrence.Reasons {
		want(settled+"{outcome=dropped,reason="+string(reason)+"}", totals.Dropped[reason])
	}
}
