package counter

import (
	"errors"
	"math"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/sinktest"
)

// one has a writer of a faultless world add one occurrence, and returns how it ends.
func (w *world) one(writer *writer) (end *occurrence.Settlement) {
	end = &occurrence.Settlement{}
	writer.add(&occurrence.Occurrence{Weight: 1, Settled: func(s occurrence.Settlement) { *end = s }}, w.event)
	return end
}

// all has one writer make all its requests, which are answered.
func (w *world) all(writer *writer) {
	w.t.Helper()
	for len(writer.counter.pending) > 0 {
		w.step(writer, true, true)
	}
}

// faultless is a world without faults.
func faultless(t *testing.T, writers int) *world {
	w := newWorld(t, 1, writers, false)
	w.faults = 0
	return w
}

// So many others have written since that our entry would be gone by now if our write
// has taken effect. It is not made again.
func TestWriteWhoseEntryMayHaveBeenPushedOutIsUncertain(t *testing.T) {
	w := faultless(t, 1+maxSinks)
	ours := w.writers[0]
	w.one(ours)
	w.all(ours)
	end := w.one(ours)
	w.step(ours, true, false) // takes effect, and its answer is lost
	for _, other := range w.writers[1:] {
		w.one(other)
		w.all(other)
	}
	w.settleDown()
	written, uncertain := w.check()
	if end.Outcome != occurrence.Uncertain || uncertain != 1 {
		t.Errorf("the write in doubt ends as %+v, %d are uncertain", end, uncertain)
	}
	if counted := w.server.Counted(); counted != written+1 || counted != 2+maxSinks {
		t.Errorf("counted %d, written %d", counted, written)
	}
}

// Whatever somebody has put into the annotation: what no write has carried yet is not
// in the count.
func TestShareOfOursSettlesNothingThatNoWriteHasCarried(t *testing.T) {
	w := faultless(t, 1)
	ours := w.writers[0]
	w.one(ours)
	w.all(ours)
	w.one(ours)
	w.start(ours) // is under way, and will conflict
	end := w.one(ours)
	last := ours.sequence
	stored := w.server.Objects[identity.Name("web-0", w.digest, 0)].DeepCopy()
	s, err := parseContributors(stored.Annotations[Annotation])
	if err != nil {
		t.Fatal(err)
	}
	s.sinks = set(s.sinks, ours.instance, 1<<60, maxSinks)
	stored.Annotations[Annotation] = s.String()
	w.server.Store(stored)
	w.finish(false)          // the conflict
	w.step(ours, true, true) // the read
	if n := len(ours.counter.pending); n == 0 || ours.counter.Last() != last || end.Outcome != "" {
		t.Errorf("what no write has carried has ended as %+v", end)
	}
}

// lostCreate is a world in which the only writer's create has taken effect and its
// answer was lost. It also returns what is stored, and how the occurrence ends.
func lostCreate(t *testing.T, target occurrence.Target) (*world, *corev1.Event, *occurrence.Settlement) {
	w := faultless(t, 1)
	ours := w.writers[0]
	ours.counter = New(ours.instance, &target)
	w.event, w.digest = target.Event, target.Series()
	end := w.one(ours)
	w.step(ours, true, false)
	return w, w.server.Objects[identity.Name(target.Name, w.digest, 0)].DeepCopy(), end
}

// Somebody has taken our annotations away from what we had created, and not heard of:
// it may be ours, and says what ours would say.
func TestCreateInDoubtIsUncertainIfTheEventHasNoAnnotations(t *testing.T) {
	raised, combined := sinktest.Event(false), sinktest.Event(false)
	raised.Message = "image pulled again"
	combined.Message = "my own summary: image pulled"
	for name, target := range map[string]occurrence.Target{
		"classic":                {Event: sinktest.Event(false)},
		"classic, since changed": {Event: raised, Begun: sinktest.Event(false)},
		"new style":              {Event: sinktest.Event(true)},
		"combined":               {Event: combined, Combined: true},
		"combined, new style":    {Event: sinktest.Event(true), Combined: true},
		"combined by a key":      {Event: combined, Combined: true, Digest: identity.OfGroup(combined, "key")},
	} {
		t.Run(name, func(t *testing.T) {
			target.Name = "web-0"
			w, stored, end := lostCreate(t, target)
			stored.Annotations = nil
			w.server.Store(stored)
			w.settleDown()
			w.check()
			if end.Outcome != occurrence.Uncertain || w.server.Counted() != 1 {
				t.Errorf("it ends as %+v, counted %d", end, w.server.Counted())
			}
		})
	}
}

// Under the name is somebody else's Event: what is in doubt was not written to it, and
// is written to the next one.
func TestWhatIsInDoubtIsNotOnAnEventOfOthers(t *testing.T) {
	for name, test := range map[string]struct {
		newStyle bool
		patch    bool // is in doubt, and not a create
		change   func(*corev1.Event)
	}{
		"a create, about another object":            {false, false, func(e *corev1.Event) { e.InvolvedObject.Name = "other" }},
		"a create, about another object, new style": {true, false, func(e *corev1.Event) { e.InvolvedObject.Name = "other" }},
		"a patch, about another object":             {false, true, func(e *corev1.Event) { e.InvolvedObject.Name = "other" }},
		"a patch, about the same":                   {false, true, func(*corev1.Event) {}},
	} {
		t.Run(name, func(t *testing.T) {
			w := quiet(t, test.newStyle)
			ours := w.writers[0]
			if test.patch {
				w.one(ours)
				w.all(ours)
			}
			end := w.one(ours)
			w.step(ours, false, false) // lost on the way
			w.server.Expire()
			squat := w.squat(0, "", test.change)
			w.settleDown()
			w.check()
			if !end.Counted() || w.server.Objects[squat.Name].ResourceVersion != squat.ResourceVersion {
				t.Errorf("it ends as %+v", end)
			}
		})
	}
}

// What a patch that is in doubt was based on keeps it, though somebody has taken the
// annotations away, and made it say something else.
func TestPatchInDoubtIsUncertainIfItsEventIsForeignSince(t *testing.T) {
	w := quiet(t, false)
	ours := w.writers[0]
	w.one(ours)
	w.all(ours)
	end := w.one(ours)
	w.step(ours, true, false)
	stored := w.server.Objects[identity.Name("web-0", w.digest, 0)].DeepCopy()
	stored.Annotations, stored.Reason = nil, "Other"
	w.server.Store(stored)
	w.settleDown()
	w.check()
	if end.Outcome != occurrence.Uncertain || w.server.Counted() != 2 {
		t.Errorf("it ends as %+v, counted %d", end, w.server.Counted())
	}
}

// ask returns a writer's next request, which has a verb.
func (w *world) ask(writer *writer, want Kind) flight {
	w.t.Helper()
	if !w.start(writer) || len(w.flights) != 1 || w.flights[0].r.Kind != want {
		w.t.Fatalf("requests %+v, want a %s", w.flights, want)
	}
	f := w.flights[0]
	w.flights = nil
	return f
}

var errLostAnswer = apierrors.NewInternalError(errors.New("lost"))

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

// Once another one has written, a read says that a lost patch has not taken effect:
// a refusal is no longer in doubt.
func TestNothingIsInDoubtAfterARead(t *testing.T) {
	w := faultless(t, 2)
	ours, other := w.writers[0], w.writers[1]
	w.one(ours)
	w.all(ours)
	end := w.one(ours)
	w.answer(w.ask(ours, Change), nil, errLostAnswer)
	w.one(other)
	w.all(other)
	w.step(ours, true, true) // a conflict
	w.step(ours, true, true) // the read
	w.answer(w.ask(ours, Change), nil, apierrors.NewForbidden(sinktest.EventsResource, "", nil))
	if end.Outcome != occurrence.Dropped || end.Reason != occurrence.Forbidden {
		t.Errorf("it ends as %+v", end)
	}
	w.check()
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

// An Event has no room for what follows a write that is in doubt. That is decided
// first.
func TestWriteInDoubtIsDecidedBeforeTheNextEventIsBegun(t *testing.T) {
	for name, effect := range map[string]bool{"lost on the way": false, "took effect": true} {
		t.Run(name, func(t *testing.T) {
			w := faultless(t, 1)
			ours := w.writers[0]
			ours.add(&occurrence.Occurrence{Weight: math.MaxInt32 - 1}, w.event)
			w.all(ours)
			end := w.one(ours)
			w.step(ours, effect, false)
			w.one(ours)
			w.settleDown()
			written, uncertain := w.check()
			if !end.Counted() || uncertain != 0 || written != math.MaxInt32+1 || w.server.Counted() != written || len(w.server.Objects) != 2 {
				t.Errorf("it ends as %+v; counted %d, written %d, in %d Events", end, w.server.Counted(), written, len(w.server.Objects))
			}
		})
	}
}

// A server that changes a count and not the resourceVersion leaves the doubt, and no
// room for what is in doubt.
func TestWriteInDoubtThatHasNoMoreRoomIsUncertain(t *testing.T) {
	w := faultless(t, 1)
	ours := w.writers[0]
	w.one(ours)
	w.all(ours)
	end := w.one(ours)
	w.step(ours, false, false)
	changed := w.server.Objects[identity.Name("web-0", w.digest, 0)].DeepCopy()
	changed.Count = math.MaxInt32
	w.answer(w.ask(ours, Change), nil, apierrors.NewConflict(sinktest.EventsResource, changed.Name, nil))
	w.answer(w.ask(ours, Read), changed, nil)
	next := w.one(ours)
	w.settleDown()
	if w.check(); end.Outcome != occurrence.Uncertain || next.Outcome != occurrence.Created {
		t.Errorf("they end as %+v and %+v", end, next)
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

// Whatever somebody has made of an Event that is known to be of the series, or that
// has a name which only we know: it is counted on.
func TestEventThatIsKnownIsCountedOnWhateverItSays(t *testing.T) {
	t.Run("observed before", func(t *testing.T) {
		w := faultless(t, 1)
		w.one(w.writers[0])
		w.all(w.writers[0])
		for _, e := range w.server.Objects {
			changed := e.DeepCopy()
			changed.Reason = "Other"
			w.server.Store(changed)
		}
		end := w.one(w.writers[0])
		w.settleDown()
		if w.check(); end.Outcome != occurrence.Merged || len(w.server.Objects) != 1 || w.server.Counted() != 2 {
			t.Errorf("it ends as %+v, with %d Events", end, len(w.server.Objects))
		}
	})
	t.Run("under a random name", func(t *testing.T) {
		w := faultless(t, 1)
		w.may.Unmarked, w.server.Strips = true, true
		end := w.one(w.writers[0])
		w.step(w.writers[0], true, false)
		for _, e := range w.server.Objects { // as admission makes it
			changed := e.DeepCopy()
			changed.Reason = "Other"
			w.server.Store(changed)
		}
		w.settleDown()
		if w.check(); end.Outcome != occurrence.Created || len(w.server.Objects) != 1 || w.server.Counted() != 1 {
			t.Errorf("it ends as %+v, with %d Events", end, len(w.server.Objects))
		}
	})
}

// With the Event has gone what was in doubt: a create that is refused is not.
func TestNothingIsInDoubtOnceTheEventHasGone(t *testing.T) {
	w := faultless(t, 1)
	ours := w.writers[0]
	w.one(ours)
	w.all(ours)
	end := w.one(ours)
	w.step(ours, false, false) // a patch, lost on the way
	w.server.Expire()
	w.step(ours, true, true) // a patch again: not found
	w.start(ours)            // a create
	f := w.flights[0]
	w.flights = nil
	if f.r.Kind != Create {
		t.Fatalf("a %s where a create was due", f.r.Kind)
	}
	w.answer(f, nil, apierrors.NewInvalid(schema.GroupKind{Kind: "Event"}, "", nil))
	if end.Outcome != occurrence.Dropped || end.Reason != occurrence.Invalid {
		t.Errorf("it ends as %+v", end)
	}
	w.check()
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

// What a later release may have added to the annotation is kept up to a limit.
func TestStateIsNotKeptWithALargeAnnotation(t *testing.T) {
	for bytes, kept := range map[int]int{maxUnknown / 2: maxUnknown/2 + len("x="), 2 * maxUnknown: 0} {
		w := quiet(t, false)
		end := w.one(w.writers[0])
		f := w.ask(w.writers[0], Create)
		object, err := do(w.server, f.r)
		object.Annotations[Annotation] += ";x=" + strings.Repeat("a", bytes)
		w.answer(f, object, err)
		if got := len(strings.Join(w.writers[0].counter.observed.contributors.unknown, "")); got != kept || end.Outcome != occurrence.Created {
			t.Errorf("remembered with %d of %d bytes, want %d; it ends as %+v", got, bytes, kept, end)
		}
	}
}
