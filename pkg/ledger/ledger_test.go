package ledger

import (
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
	got := l.Totals()
	want := Totals{
		Recorded: 20,
		Adopted:  3,
		Outcomes: map[occurrence.Outcome]int64{
			occurrence.Created: 1, occurrence.Merged: 5, occurrence.Aggregated: 4,
			occurrence.Replayed: 0, occurrence.Dropped: 5, occurrence.Uncertain: 0,
			occurrence.Found: 1, occurrence.HandedOver: 2,
		},
		Dropped: map[occurrence.Reason]int64{occurrence.Forbidden: 5},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got.Settled() != 18 || got.Written() != 10 || got.Pending() != 5 || reports != 2 {
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
