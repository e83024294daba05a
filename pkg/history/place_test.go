package history

import (
	"slices"
	"testing"

	"github.com/eventd/eventd/pkg/observer"
)

// meet has a follower get to the place of another one, if that is ahead: it reads what is between, or moves there.
func (m *model) meet(t *testing.T, tail, other *tail) (met bool) {
	t.Helper()
	from, ok := tail.f.Place()
	to, known := other.f.Place()
	if !ok || !known || !from.Before(to) || from.epoch != to.epoch || to.epoch != m.epoch {
		return false
	}
	if m.rng.IntN(2) == 0 {
		if cursor := tail.f.MoveTo(to); cursor != to.String() {
			t.Fatalf("the cursor is %s, not %s", cursor, to)
		}
	} else {
		var got []observer.Version
		for at, ok := from, true; at != to || !ok; at, ok = tail.f.Place() {
			versions, _, err := tail.f.ReadTo(t.Context(), 1+m.rng.IntN(30), to)
			if err != nil {
				t.Fatal(err)
			}
			if got = append(got, versions...); len(got) > len(m.all) {
				t.Fatal("it reads without end")
			}
		}
		if want := m.all[max(tail.at, 0):other.at]; tail.at >= 0 && !slices.Equal(ids(got), idsOfRows(want)) {
			t.Fatalf("from %d on to %d, a follower gets\n%v, want\n%v", tail.at, other.at, ids(got), idsOfRows(want))
		}
	}
	tail.at, tail.cursor = other.at, to.String()
	return true
}

// A follower that begins after a version that this history does not have yet will skip what comes up to there: where it
// is, no other one is.
func TestFollowerAheadOfTheHistoryIsAtNoPlace(t *testing.T) {
	h := newForTest(t, 1<<20, smallSizes)
	h.Add(numbered(10))
	ahead, err := h.Follow(formatRV(20), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		added uint64
		ok    bool
	}{{0, false}, {15, false}, {21, true}} {
		if c.added > 0 {
			h.Add(numbered(c.added))
		}
		if _, _, err := ahead.Read(t.Context(), 10); err != nil {
			t.Fatal(err)
		}
		if _, ok := ahead.Place(); ok != c.ok {
			t.Errorf("at a place after %d: %t", c.added, ok)
		}
	}
}
