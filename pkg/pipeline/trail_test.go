package pipeline

import (
	"maps"
	"testing"

	"github.com/eventd/eventd/pkg/ledger"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/query/v1alpha1"
	"github.com/eventd/eventd/pkg/trail"
)

// modelTrail is a trail, and what it has to know.
type modelTrail struct {
	*trail.Trail
	recorded map[string]int64 // by name of the object
}

func newModelTrail(t *testing.T) *modelTrail {
	t.Helper()
	of, err := trail.New(trail.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return &modelTrail{of, map[string]int64{}}
}

// settledOf returns the occurrences of steps that were recorded, and those that have settled, by outcome and reason.
func settledOf(steps []trail.Step) (recorded int64, settled map[string]int64) {
	settled = map[string]int64{}
	for _, s := range steps {
		switch s.Action {
		case v1alpha1.ActionRecorded:
			recorded += s.Occurrences
		case v1alpha1.ActionFiltered:
			settled[s.Outcome+"/"+s.Rule] += s.Occurrences
		case v1alpha1.ActionSettled:
			settled[s.Outcome+"/"+s.Cause] += s.Occurrences
		}
	}
	return recorded, settled
}

func sum(of map[string]int64) (sum int64) {
	for _, n := range of {
		sum += n
	}
	return sum
}

// settledIn returns what a ledger has settled, by outcome and reason.
func settledIn(totals ledger.Totals) map[string]int64 {
	settled := map[string]int64{}
	for outcome, n := range totals.Outcomes {
		if outcome != occurrence.Dropped && outcome != occurrence.Filtered && n > 0 {
			settled[string(outcome)+"/"] = n
		}
	}
	for reason, n := range totals.Dropped {
		settled["dropped/"+string(reason)] = n
	}
	for rule, n := range totals.Filtered {
		settled["filtered/"+string(rule)] = n
	}
	return settled
}

// check compares the trail with the ledger while nothing is in motion: of each object, what was recorded has settled or
// is pending, and of all objects, as much has settled for each reason as the ledger says.
func (m *modelTrail) check(t *testing.T, totals ledger.Totals) {
	t.Helper()
	all, pending, known := map[string]int64{}, int64(0), true
	for name, want := range m.recorded {
		steps, _, forgotten := m.Why(trail.Query{Object: trail.Object{Name: name}})
		if forgotten {
			known = false
			continue
		}
		recorded, settled := settledOf(steps)
		if left := recorded - sum(settled); recorded != want || left < 0 || left > totals.Pending() {
			t.Errorf("of %s, %d were recorded, the trail has %d, of which %v have settled; %d are pending", name, want, recorded, settled, totals.Pending())
		} else {
			pending += left
		}
		for why, n := range settled {
			all[why] += n
		}
	}
	if want := settledIn(totals); known && (!maps.Equal(all, want) || pending != totals.Pending()) {
		t.Errorf("the trail has %v and %d pending, the ledger %v and %d", all, pending, want, totals.Pending())
	}
}
