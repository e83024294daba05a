package counter

import (
	"testing"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/occurrence"
)

// Whatever the rights are and whatever admission removes: what is said to be written
// is stored, once.
func TestAccountsAgreeWithFewerRightsAndWithoutAnnotations(t *testing.T) {
	for _, test := range []struct {
		name            string
		may             Access
		strips, giveUps bool
		expiry          bool
		then            *Access // from the middle on, if it is set
	}{
		{name: "all rights", may: Access{Change: true}, giveUps: true},
		{name: "create only", may: Access{}},
		{name: "create only, and some are given up", may: Access{}, giveUps: true},
		{name: "stripped, not known yet", may: Access{Change: true}, strips: true, giveUps: true},
		{name: "stripped", may: Access{Change: true, Unmarked: true}, strips: true},
		{name: "stripped, and some are given up", may: Access{Change: true, Unmarked: true}, strips: true, giveUps: true},
		{name: "stripped, and they expire", may: Access{Change: true, Unmarked: true}, strips: true, expiry: true},
		{name: "stripped, create only", may: Access{Unmarked: true}, strips: true, giveUps: true},
		{name: "forbidden to change anything after a while", may: Access{Change: true}, then: &Access{}},
		{name: "found to be stripped after a while", may: Access{Change: true}, strips: true, then: &Access{Change: true, Unmarked: true}},
		{name: "no more stripped", may: Access{Change: true, Unmarked: true}, giveUps: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(300) {
				w := newWorld(t, seed, 3, seed%2 == 0)
				w.may, w.server.Strips = test.may, test.strips
				r := run{report: w.record}
				if test.then != nil {
					r.then = func() { w.may = *test.then }
				}
				if test.expiry {
					r.expire = w.expireAnything
				}
				if test.giveUps {
					r.drop = giveUp
				}
				uncertain := w.interleave(r)
				if alone := test.may.Unmarked || !test.may.Change; alone && !test.giveUps && uncertain != 0 {
					t.Errorf("%d uncertain, though nobody gave up", uncertain)
				}
				if t.Failed() {
					t.Fatalf("seed %d", seed)
				}
			}
		})
	}
}

// expireAnything is expire for Events that do not say what is in them.
func (w *world) expireAnything() {
	for _, writer := range w.writers {
		a := writer.counter
		for i := range a.pending {
			if a.pending[i].Sequence <= a.carried {
				w.slack += a.pending[i].Weight
			}
		}
	}
	w.late = nil
	w.server.Expire()
}

// What clients have reported is remembered where no annotation says it.
func TestClientIsCountedOnceWhereAdmissionRemovesAnnotations(t *testing.T) {
	w := quiet(t, false)
	w.server.Strips = true
	for range 2 {
		w.clients["client"] = 5
		w.writers[0].views["client"] = 0
		w.reportTo(w.writers[0], "client")
		w.settleDown()
	}
	w.check()
	if n := w.writers[0].settled[occurrence.Replayed]; n != 5 || w.server.Counted() != 5 {
		t.Errorf("%d are replayed, %d are counted", n, w.server.Counted())
	}
}

// A write that adds nothing to the count is not known by it: lost, it is made again.
func TestLostChangeIsMadeAgainWhereAdmissionRemovesAnnotations(t *testing.T) {
	w := quiet(t, false)
	ours := w.writers[0]
	w.server.Strips = true
	w.one(ours)
	w.all(ours)
	event := w.event.DeepCopy()
	event.Labels = map[string]string{"l": "m"}
	ours.add(&occurrence.Occurrence{Settled: func(occurrence.Settlement) {}}, event)
	w.step(ours, false, false) // lost on the way
	name := identity.Name("web-0", w.digest, 0)
	w.server.Store(w.server.Objects[name].DeepCopy()) // somebody else's write
	w.settleDown()
	if got := w.server.Objects[name]; got.Labels["l"] != "m" || got.Count != 1 {
		t.Errorf("stored with labels %v and a count of %d", got.Labels, got.Count)
	}
}

// An Event that has its annotations again is everybody's, and what they say is true.
func TestAnnotationsThatAreNoMoreRemovedAreRead(t *testing.T) {
	w := faultless(t, 2)
	ours, other := w.writers[0], w.writers[1]
	w.server.Strips = true
	w.one(ours)
	w.all(ours)
	w.server.Strips = false
	w.one(ours)
	w.step(ours, true, false) // a patch, which puts them there
	for _, writer := range []*writer{other, ours} {
		w.clients["client"] = 5
		w.reportTo(writer, "client")
		w.settleDown()
	}
	w.check()
	if n := ours.settled[occurrence.Replayed]; n != 5 || w.server.Counted() != 2+5 || len(w.server.Objects) != 1 {
		t.Errorf("%d are replayed, %d are counted, in %d Events", n, w.server.Counted(), len(w.server.Objects))
	}
}
