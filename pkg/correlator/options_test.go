package correlator

import (
	"math"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestMetrics(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	s := newStream(t, func(o *Options) { o.Registerer, o.CacheSize = r, 1 })
	s.occurs(0, about("a", "r", "m"))
	s.occurs(0, about("a", "r", "m"))
	s.occurs(0, about("b", "r", "m"))
	want := `
# HELP eventd_correlator_decisions_total Decisions by reason: new_series, repeat, combined (counted on its group's combined Event), budget_spent (dropped).
# TYPE eventd_correlator_decisions_total counter
eventd_correlator_decisions_total{reason="budget_spent"} 0
eventd_correlator_decisions_total{reason="combined"} 0
eventd_correlator_decisions_total{reason="new_series"} 2
eventd_correlator_decisions_total{reason="repeat"} 1
# HELP eventd_correlator_deferred_total Occurrences with a deferred write, by reason: spaced (series written recently), settling (final count awaited), budget (subject without token).
# TYPE eventd_correlator_deferred_total counter
eventd_correlator_deferred_total{reason="budget"} 0
eventd_correlator_deferred_total{reason="settling"} 0
eventd_correlator_deferred_total{reason="spaced"} 1
# HELP eventd_correlator_evictions_total Subjects evicted because the cache was full.
# TYPE eventd_correlator_evictions_total counter
eventd_correlator_evictions_total 1
# HELP eventd_correlator_subjects Subjects in the cache.
# TYPE eventd_correlator_subjects gauge
eventd_correlator_subjects 1
`
	if err := testutil.GatherAndCompare(r, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

func TestErrorNamesTheInvalidOption(t *testing.T) {
	for _, test := range []struct {
		field string // "" if the options are valid
		spoil func(*Options)
	}{
		{"", func(o *Options) { o.Heartbeat = MaxHeartbeat }},
		{"CacheSize", func(o *Options) { o.CacheSize = 0 }},
		{"MaxSeries", func(o *Options) { o.MaxSeries = 0 }},
		{"Burst", func(o *Options) { o.Burst = 0 }},
		{"QPS", func(o *Options) { o.QPS = 0 }},
		{"QPS", func(o *Options) { o.QPS = math.NaN() }},
		{"MaxMessages", func(o *Options) { o.MaxMessages = 0 }},
		{"Interval", func(o *Options) { o.Interval = 0 }},
		{"Heartbeat", func(o *Options) { o.Heartbeat = 0 }},
		{"Heartbeat", func(o *Options) { o.Heartbeat = MaxHeartbeat + 1 }},
	} {
		o := DefaultOptions()
		test.spoil(&o)
		_, err := New(o)
		if test.field == "" && err == nil {
			continue
		}
		if err == nil || !strings.HasPrefix(err.Error(), "correlator options: "+test.field+" must be ") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", test.field, err)
		}
	}
}
