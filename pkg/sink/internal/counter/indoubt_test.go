package counter

import (
	"math"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/test/sinktest"
)

func noAnnotations(e *corev1.Event) { e.Annotations = nil }

func otherReason(e *corev1.Event) { e.Reason = "Other" }

// othersWrite has all writers but the first add and write one.
func othersWrite(w *world) {
	for i := range w.writers[1:] {
		by(1+i, func(w *world) { w.ours.add(&occurrence.Occurrence{Weight: 1}, w.event) }, writes)(w)
	}
}

func TestWriteInDoubt(t *testing.T) {
	check(t, []scenario{{
		// Our entry would be gone by now if our write took effect. It is not made again.
		name: "is uncertain if its entry may have been pushed out", writers: 1 + maxSinks,
		steps: []step{adds, writes, adds, losesAnswer, othersWrite, settles},
		ends:  []string{"created", "uncertain"}, counted: 2 + maxSinks, events: 1,
	}, {
		name:  "is uncertain if its Event is foreign since",
		steps: []step{adds, writes, adds, losesAnswer, changes(noAnnotations), changes(otherReason), settles},
		ends:  []string{"created", "uncertain"}, counted: 2, events: 1,
	}, {
		name: "was not made if another was made since", writers: 2,
		// There is a conflict, and then the read; a refusal is not in doubt any more.
		steps: []step{adds, writes, adds, losesRequest, othersWrite, sends, sends, isRefused(Change, errForbidden)},
		ends:  []string{"created", "dropped forbidden"}, counted: 2, events: 1,
	}, {
		name:  "has gone with its Event",
		steps: []step{adds, writes, adds, losesRequest, expires, sends, isRefused(Create, errInvalid)},
		ends:  []string{"created", "dropped invalid"}, counted: 1,
	}, {
		name:  "is decided before the next Event is begun, lost on the way",
		steps: []step{addsMany(math.MaxInt32 - 1), writes, adds, losesRequest, adds, settles},
		ends:  []string{"created", "merged", "created"}, counted: math.MaxInt32 + 1, events: 2,
	}, {
		name:  "is decided before the next Event is begun, took effect",
		steps: []step{addsMany(math.MaxInt32 - 1), writes, adds, losesAnswer, adds, settles},
		ends:  []string{"created", "merged", "created"}, counted: math.MaxInt32 + 1, events: 2,
	}, {
		// As by a server that changes a count and not the resourceVersion.
		name: "is uncertain without room for it",
		steps: []step{adds, writes, adds, losesRequest, isRefused(Change, errConflict), func(w *world) {
			full := w.server.Objects[identity.Name("web-0", w.digest, 0)].DeepCopy()
			full.Count = math.MaxInt32
			w.answer(w.request(), full, nil)
		}, adds, settles},
		ends: []string{"created", "uncertain", "created"}, counted: 2, events: 2,
	}, {
		name:  "is not on an Event about another object",
		steps: []step{adds, losesRequest, squats(0, "", otherObject), settles},
		ends:  []string{"created"}, counted: 1, events: 2,
	}, {
		name: "is not on an Event about another object, new style", newStyle: true,
		steps: []step{adds, losesRequest, squats(0, "", otherObject), settles},
		ends:  []string{"created"}, counted: 1, events: 2,
	}, {
		name:  "is not on an Event about another object in place of its own",
		steps: []step{adds, writes, adds, losesRequest, expires, squats(0, "", otherObject), settles},
		ends:  []string{"created", "created"}, counted: 2, events: 2,
	}, {
		name:  "is not on a foreign Event in place of its own",
		steps: []step{adds, writes, adds, losesRequest, expires, squats(0, "", nil), settles},
		ends:  []string{"created", "created"}, counted: 2, events: 2,
	}, {
		name:  "keeps its random name, though its Event was there and has gone",
		steps: []step{may(Access{Change: true, Unmarked: true}), adds, isLate, isRefused(Create, errExists), isRefused(Read, errNotFound), settles},
		ends:  []string{"created"}, counted: 1, events: 1,
	}}...)
}

func otherObject(e *corev1.Event) { e.InvolvedObject.Name = "other" }

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
		of := func(w *world) {
			target.Name = "web-0"
			w.ours.counter = New(w.ours.instance, &target, nil)
			w.event, w.digest = target.Event, target.Series()
		}
		check(t, scenario{
			name:  name,
			steps: []step{of, adds, losesAnswer, changes(noAnnotations), settles},
			ends:  []string{"uncertain"}, counted: 1, events: 1,
		})
	}
}

// Whatever somebody has made of an Event that is known to be of the series, or that
// has a name which only we know: it is counted on.
func TestEventThatIsKnownIsCountedOnWhateverItSays(t *testing.T) {
	check(t, scenario{
		name:  "observed before",
		steps: []step{adds, writes, changes(otherReason), adds, settles},
		ends:  []string{"created", "merged"}, counted: 2, events: 1,
	}, scenario{
		name:  "under a random name, as admission makes it",
		steps: []step{strips(true), may(Access{Change: true, Unmarked: true}), adds, losesAnswer, changes(otherReason), settles},
		ends:  []string{"created"}, counted: 1, events: 1,
	})
}
