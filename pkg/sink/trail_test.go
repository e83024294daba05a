package sink

import (
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/eventd/eventd/pkg/ledger"
	"github.com/eventd/eventd/pkg/occurrence"
)

// account is a Trail that adds up what it is told. Every sink of a test has one.
type account struct {
	mu              sync.Mutex
	adopted, writes int64
	settled         map[why]int64
	eventless       bool // a part had no Event
}

type why struct {
	outcome occurrence.Outcome
	reason  occurrence.Reason
}

// Adopted implements Trail.
func (a *account) Adopted(p Part) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.adopted += p.Weight
	a.eventless = a.eventless || p.Event == nil
}

// Settled implements Trail.
func (a *account) Settled(p Part, s occurrence.Settlement) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.writes += p.Writes
	a.eventless = a.eventless || p.Event == nil
	if p.Weight > 0 {
		if a.settled == nil {
			a.settled = map[why]int64{}
		}
		a.settled[why{s.Outcome, s.Reason}] += p.Weight
	}
}

// want checks that a ledger has counted the same.
func (a *account) want(t testing.TB, totals ledger.Totals) {
	t.Helper()
	want := map[why]int64{}
	for outcome, n := range totals.Outcomes {
		if n > 0 && outcome != occurrence.Dropped {
			want[why{outcome, occurrence.NoReason}] = n
		}
	}
	for reason, n := range totals.Dropped {
		want[why{occurrence.Dropped, reason}] = n
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.adopted != totals.Adopted || !maps.Equal(a.settled, want) || a.eventless {
		t.Errorf("the trail has %d adopted and %v, the ledger %d and %v", a.adopted, a.settled, totals.Adopted, want)
	}
}

// The parts of a write share it: entries that others wait for, and one that only changes the Event.
func TestPartsSayHowOftenAnEventWasWritten(t *testing.T) {
	bubble(t, &fake{}, nil, func(t *testing.T, b *bench) {
		nothing := func(o *occurrence.Occurrence) { o.Weight = 0 }
		for i, occurrences := range [][]change{{func(*occurrence.Occurrence) {}}, {onSettled(func(occurrence.Settlement) {}), onSettled(func(occurrence.Settlement) {})}, {nothing}} {
			for _, c := range occurrences {
				b.recordLater(0, time.Hour, c) // or the first may be written before the second is recorded
			}
			b.flush()
			if got := b.trail.writes; got != int64(i+1) {
				t.Errorf("%d writes are reported, want %d", got, i+1)
			}
		}
	})
}
