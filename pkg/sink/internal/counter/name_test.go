package counter

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/sinktest"
)

// A create under a random name that may still take effect keeps its name, though the
// Event was there and has gone.
func TestNameOfACreateInDoubtIsKept(t *testing.T) {
	w := quiet(t, false)
	w.may.Unmarked = true
	ours := w.writers[0]
	end := w.one(ours)
	first := w.ask(ours, Create)
	w.answer(first, nil, errLostAnswer)
	w.answer(w.ask(ours, Create), nil, apierrors.NewAlreadyExists(sinktest.EventsResource, first.r.Name))
	w.answer(w.ask(ours, Read), nil, apierrors.NewNotFound(sinktest.EventsResource, first.r.Name))
	again := w.ask(ours, Create)
	if again.r.Name != first.r.Name {
		t.Errorf("created as %s, and then as %s", first.r.Name, again.r.Name)
	}
	do(w.server, first.r) // late
	object, err := do(w.server, again.r)
	w.answer(again, object, err)
	w.settleDown()
	if w.check(); end.Outcome != occurrence.Created || w.server.Counted() != 1 {
		t.Errorf("it ends as %+v, counted %d", end, w.server.Counted())
	}
}

// What an account may not change it leaves, and what may have been written there.
func TestAccountLeavesAnEventThatItMayNotChange(t *testing.T) {
	for name, test := range map[string]struct {
		before    func(w *world, ours *writer)
		counts    int64 // of all Events
		uncertain int64
	}{
		"that it has written": {func(w *world, ours *writer) {
			w.one(ours)
			w.all(ours)
		}, 2, 0},
		"that others have made": {func(w *world, ours *writer) {
			w.one(w.writers[1])
			w.all(w.writers[1])
			w.one(ours)
			w.step(ours, true, true) // it exists
		}, 3, 0},
		"that it may have made": {func(w *world, ours *writer) {
			w.one(ours)
			w.step(ours, true, false)
			w.step(ours, true, true) // it exists
		}, 2, 1},
		"to which it may have written": {func(w *world, ours *writer) {
			w.one(ours)
			w.all(ours)
			w.one(ours)
			w.step(ours, true, false)
		}, 3, 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := faultless(t, 2)
			ours := w.writers[0]
			test.before(w, ours)
			w.may.Change = false
			first := w.server.Objects[identity.Name("web-0", w.digest, 0)]
			end := w.one(ours)
			for len(ours.counter.pending) > 0 && w.start(ours) {
				if len(w.flights) == 0 {
					continue // something has settled
				}
				f := w.flights[0]
				w.flights = nil
				if f.r.Kind != Create {
					t.Fatalf("a %s, which is forbidden", f.r.Kind)
				}
				object, err := do(w.server, f.r)
				w.answer(f, object, err)
			}
			w.check()
			if !end.Counted() || end.Object.Name == first.Name || w.server.Objects[first.Name] != first {
				t.Errorf("it ends as %+v", end)
			}
			if w.server.Counted() != test.counts || ours.settled[occurrence.Uncertain] != test.uncertain {
				t.Errorf("counted %d, settled as %v", w.server.Counted(), ours.settled)
			}
		})
	}
}

// What was in doubt on an Event that is left is in doubt no more, so that a series
// whose names are all taken gets a random one.
func TestSeriesInDoubtWhoseNamesAreAllTakenGetsARandomOne(t *testing.T) {
	w, stored, end := lostCreate(t, occurrence.Target{Event: sinktest.Event(false), Name: "web-0"})
	stored.Annotations = nil
	w.server.Store(stored)
	for suffix := 1; suffix <= identity.MaxSuffix; suffix++ {
		w.squat(suffix, "no shares", nil)
	}
	next := w.one(w.writers[0])
	w.settleDown()
	w.check()
	if end.Outcome != occurrence.Uncertain || next.Outcome != occurrence.Created {
		t.Fatalf("they end as %+v and %+v", end, next)
	}
	if derived := identity.Name("web-0", w.digest, identity.MaxSuffix+1); next.Object.Name == derived {
		t.Errorf("it is created as %s, which anybody can guess", derived)
	}
}

// A series goes back to the first of its names when its Event is gone, and after none
// was free.
func TestSeriesGoesBackToItsFirstName(t *testing.T) {
	for name, occupied := range map[string]int{"its event is gone": 1, "none was free": identity.MaxSuffix + 1} {
		t.Run(name, func(t *testing.T) {
			w := faultless(t, 1)
			for suffix := range occupied {
				e := sinktest.Event(false)
				e.Name = identity.Name("web-0", w.digest, suffix)
				e.Annotations = map[string]string{identity.Annotation: "another"}
				w.server.Store(e)
			}
			w.one(w.writers[0])
			w.settleDown()
			w.server.Expire()
			end := w.one(w.writers[0])
			w.settleDown()
			if end.Outcome != occurrence.Created || end.Object.Name != identity.Name("web-0", w.digest, 0) || len(w.server.Objects) != 1 {
				t.Errorf("it ends as %+v, with %d Events", end, len(w.server.Objects))
			}
			w.check()
		})
	}
}

func TestSeriesWhoseNamesAreAllTakenGetsARandomOne(t *testing.T) {
	w := faultless(t, 2)
	for suffix := range identity.MaxSuffix + 1 {
		w.squat(suffix, "no shares", nil)
	}
	record := func(i int) {
		w.writers[i].add(&occurrence.Occurrence{Weight: 1}, w.event)
		w.settleDown()
	}
	for range 3 {
		record(0)
	}
	record(1) // which does not find what the first has
	var counts []int64
	for name, e := range w.server.Objects {
		if strings.HasSuffix(w.server.Objects[name].Annotations[Annotation], "no shares") {
			continue
		}
		counts = append(counts, countOf(e))
	}
	if len(counts) != 2 || counts[0]+counts[1] != 4 || counts[0]*counts[1] != 3 {
		t.Errorf("counts of %v beside the squatter's, want 3 and 1", counts)
	}
	w.check()
	// Once it expires there is nobody in the way.
	w.server.Expire()
	record(0)
	if e := w.server.Objects[identity.Name("web-0", w.digest, 0)]; e == nil {
		t.Errorf("the next Event has the name %v", w.server.Objects)
	}
}
