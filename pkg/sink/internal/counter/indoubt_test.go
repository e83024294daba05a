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

var errLostAnswer = apierrors.NewInternalError(errors.New("lost"))

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
