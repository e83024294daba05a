package ledger

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/eventd/eventd/pkg/occurrence"
)

func TestLedgerAddsUp(t *testing.T) {
	l := New()
	reports := 0
	o := &occurrence.Occurrence{Weight: 5, Settled: func(occurrence.Settlement) { reports++ }}
	for range 4 {
		l.Record(o)
	}
	l.Settle(o, occurrence.Settlement{Outcome: occurrence.Merged})
	l.Settle(o, occurrence.Settlement{Outcome: occurrence.Dropped, Reason: occurrence.Forbidden})
	l.Add(occurrence.Created, occurrence.NoReason, 1)
	l.Add(occurrence.Aggregated, occurrence.NoReason, 4)
	l.Adopt(3)
	l.Add(occurrence.Found, occurrence.NoReason, 1)
	l.Add(occurrence.HandedOver, occurrence.NoReason, 2)
	l.Add(occurrence.Filtered, "noise", 1)
	l.Add(occurrence.Filtered, "probes", 0) // exported at 0, and not in the totals
	got := l.Totals()
	want := Totals{
		Recorded: 20,
		Adopted:  3,
		Outcomes: map[occurrence.Outcome]int64{
			occurrence.Created: 1, occurrence.Merged: 5, occurrence.Aggregated: 4,
			occurrence.Replayed: 0, occurrence.Dropped: 5, occurrence.Uncertain: 0,
			occurrence.Found: 1, occurrence.HandedOver: 2, occurrence.Filtered: 1, occurrence.Acknowledged: 0,
		},
		Dropped:  map[occurrence.Reason]int64{occurrence.Forbidden: 5},
		Filtered: map[occurrence.Reason]int64{"noise": 1},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got.Settled() != 19 || got.Written() != 10 || got.Pending() != 4 || reports != 2 {
		t.Errorf("settled %d, written %d, pending %d, reported %d times", got.Settled(), got.Written(), got.Pending(), reports)
	}
}

// Counters exist at 0 before the first occurrence, so that a rate over the
// first one is not lost.
func TestEveryOutcomeIsExportedFromTheStart(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(New())
	n, err := testutil.GatherAndCount(r, "eventd_occurrences_settled_total")
	if want := len(occurrence.Outcomes) - 1 + len(occurrence.Reasons); n != want || err != nil {
		t.Errorf("%d series, want %d: %v", n, want, err)
	}
	recorded := "# HELP eventd_occurrences_recorded_total Occurrences recorded.\n# TYPE eventd_occurrences_recorded_total counter\neventd_occurrences_recorded_total 0\n"
	if err := testutil.GatherAndCompare(r, strings.NewReader(recorded), "eventd_occurrences_recorded_total"); err != nil {
		t.Error(err)
	}
}

// Whatever operators call their rules, and how often they rename them.
func TestRulesWithCountersAreLimited(t *testing.T) {
	l := New()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(l)
	for range 2 {
		for i := range 2 * maxRules {
			l.Add(occurrence.Filtered, occurrence.Reason(fmt.Sprint("rule-", i)), 1)
		}
	}
	got := l.Totals()
	if len(got.Filtered) != maxRules+1 || got.Filtered["rule-0"] != 2 || got.Filtered[occurrence.NoReason] != 2*maxRules || got.Outcomes[occurrence.Filtered] != 4*maxRules {
		t.Errorf("%d rules: %v", len(got.Filtered), got)
	}
	n, err := testutil.GatherAndCount(r, "eventd_occurrences_settled_total")
	if want := len(occurrence.Outcomes) - 1 + len(occurrence.Reasons) + maxRules; n != want || err != nil {
		t.Errorf("%d series, want %d: %v", n, want, err)
	}
}
