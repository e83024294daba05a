package counter

import (
	"fmt"
	"math"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/occurrence"
)

// These tests are about a squatter: somebody who may create Events, knows what will
// be reported, the name that it will have, and the instance that writes it, and
// makes the Event first.

// claims squats with our contribution, up to a sequence.
func claims(sequence uint64) step {
	return func(w *world) { squats(0, fmt.Sprintf("v1;s=%s:%d", w.ours.instance, sequence), nil)(w) }
}

// addsAt adds an occurrence with a sequence.
func addsAt(sequence uint64) step {
	return func(w *world) {
		w.ours.sequence = sequence - 3
		adds(w)
		w.ours.counter.Newest().Sequence = sequence
	}
}

func TestSquatterTakesNothingFromTheCount(t *testing.T) {
	like := func(change func(*corev1.Event)) step { return squats(0, "v1", change) }
	const leftAlone, shared = 2, 1 // Events
	for name, test := range map[string]struct {
		squats step
		events int
	}{
		"that claims all there will ever be":  {claims(math.MaxUint64), leftAlone},
		"that claims some of what is pending": {claims(1500), leftAlone},
		"that claims what comes later":        {claims(4000), leftAlone},
		"that claims what was before":         {claims(999), shared},
		"that says we made it, with others since": {
			func(w *world) { squats(0, fullList(w.ours.instance), nil)(w) }, shared},
		"that claims everything for another instance": {
			squats(0, fmt.Sprintf("v1;s=%s:%d", numbered(7), uint64(math.MaxUint64)), nil), shared},
		"that names as many clients as there can be": {squats(0, manyClients(maxClients), nil), shared},
		"that names more clients than there can be":  {squats(0, manyClients(maxClients+100), nil), shared},
		"with much of what nobody knows":             {squats(0, "v1;x="+strings.Repeat("x", maxUnknown), nil), leftAlone},
		"with a very long list":                      {squats(0, manyClients(10_000), nil), leftAlone},
		"that counts as much as can be":              {like(func(e *corev1.Event) { e.Count = math.MaxInt32 }), leftAlone},
		"about another object":                       {like(otherObject), leftAlone},
		"for another reason":                         {like(otherReason), leftAlone},
		"of another type":                            {like(func(e *corev1.Event) { e.Type = "Other" }), leftAlone},
		"of the other style":                         {like(func(e *corev1.Event) { e.EventTime = metav1.NowMicro() }), leftAlone},
		"that shows the count of a series": {
			like(func(e *corev1.Event) { e.Series = &corev1.EventSeries{Count: 7} }), leftAlone},
	} {
		ends := []string{"merged", "merged", "merged"}
		if test.events == leftAlone {
			ends[0] = "created"
		}
		check(t, scenario{
			name:  name,
			steps: []step{test.squats, addsAt(1000), addsAt(2000), addsAt(3000), settles},
			ends:  ends, counted: 3, events: test.events,
		})
	}
}

// What no write has carried is in no count, though its sequence is known.
func TestSquatterDoesNotClaimWhatIsYetToBeWritten(t *testing.T) {
	check(t, scenario{
		name:  "in a new Event",
		steps: []step{addsAt(1000), begins, addsAt(2000), claims(2000), settles},
		ends:  []string{"created", "merged"}, counted: 2, events: 2,
	}, scenario{
		name: "in an Event of ours",
		steps: []step{adds, writes, adds, begins, adds, changes(func(e *corev1.Event) {
			instance, _, _ := strings.Cut(strings.TrimPrefix(e.Annotations[Annotation], "v1;c="), ";")
			e.Annotations[Annotation] = fmt.Sprintf("v1;s=%s:%d", instance, uint64(math.MaxUint64))
		}), settles},
		ends: []string{"created", "created", "merged"}, counted: 3, events: 2,
	})
}

func TestSquattersEvent(t *testing.T) {
	check(t, scenario{
		name:  "is left alone in place of one that has gone",
		steps: []step{adds, settles, expires, squats(0, "v1", otherObject), adds, settles},
		ends:  []string{"created", "created"}, counted: 2, events: 2,
	}, scenario{
		// The note of a new-style Event cannot be changed later, so it has to be right.
		name: "is left alone if it says something else, new style", newStyle: true,
		steps: []step{squats(0, "v1", func(e *corev1.Event) { e.Message = "all is well" }), adds, settles},
		ends:  []string{"created"}, counted: 1, events: 2,
	}, scenario{
		name:  "gets the message that was last reported",
		steps: []step{squats(0, "v1", func(e *corev1.Event) { e.Message = "all is well" }), adds, settles},
		ends:  []string{"merged"}, counted: 1, events: 1,
		then: func(t *testing.T, w *world) {
			for _, e := range w.server.Objects {
				if e.Message != w.event.Message {
					t.Errorf("the message is %q", e.Message)
				}
			}
		},
	}, scenario{
		name:  "is left alone if it is too full for a patch",
		steps: []step{squats(0, "v1", nil), adds, sends, sends, isRefused(Change, errInvalid), settles},
		ends:  []string{"created"}, counted: 1, events: 2,
	}, scenario{
		// With labels and without: it may have had no room for them. The next one has.
		name: "is left alone if it is too full for a patch without labels",
		steps: []step{squats(0, "v1", nil), labelled, sends, sends,
			isRefused(Change, errInvalid), isRefused(Change, errInvalid), settles},
		ends: []string{"created"}, counted: 1, events: 2,
		then: hasLabel(1),
	})
}

func labelled(w *world) {
	event := w.event.DeepCopy()
	event.Labels = map[string]string{"l": "m"}
	w.add(occurrence.Occurrence{Weight: 1}, event)
}

// hasLabel checks the Event under a name.
func hasLabel(suffix int) func(*testing.T, *world) {
	return func(t *testing.T, w *world) {
		t.Helper()
		if e := w.server.Objects[identity.Name("web-0", w.digest, suffix)]; e == nil || e.Labels["l"] != "m" {
			t.Errorf("without its label: %v", e)
		}
	}
}

func fullList(creator Contributor) string {
	s := contributors{creator: creator}
	for i := range maxSinks {
		s.sinks = append(s.sinks, contribution{numbered(i), math.MaxUint64})
	}
	return s.String()
}

func manyClients(n int) string {
	var s contributors
	for i := range n {
		s.clients = append(s.clients, contribution{numbered(i), 1})
	}
	return s.String()
}

// What a counter may not change it leaves, and what may have been written there.
func TestAccountLeavesAnEventThatItMayNotChange(t *testing.T) {
	forbidden := may(Access{})
	check(t, scenario{
		name:  "that it has written",
		steps: []step{adds, writes, forbidden, adds, settles},
		ends:  []string{"created", "created"}, counted: 2, events: 2,
	}, scenario{
		name: "that others have made", writers: 2,
		steps: []step{othersWrite, adds, sends, forbidden, adds, settles},
		ends:  []string{"created", "merged"}, counted: 3, events: 2,
	}, scenario{
		name:  "that it may have made",
		steps: []step{adds, losesAnswer, sends, forbidden, adds, settles},
		ends:  []string{"uncertain", "created"}, counted: 2, events: 2,
	}, scenario{
		name:  "to which it may have written",
		steps: []step{adds, writes, adds, losesAnswer, forbidden, adds, settles},
		ends:  []string{"created", "uncertain", "created"}, counted: 3, events: 2,
	})
}

// foreign makes Events of other series under the first names.
func foreign(names int) step {
	return func(w *world) {
		for suffix := range names {
			squats(suffix, "", func(e *corev1.Event) { e.Annotations[identity.Annotation] = "another" })(w)
		}
	}
}

// named checks the name of the Event on which the last occurrence is counted.
func named(suffix int, want bool) func(*testing.T, *world) {
	return func(t *testing.T, w *world) {
		t.Helper()
		got := w.ends[len(w.ends)-1].Object.Name
		if derived := identity.Name("web-0", w.digest, suffix); (got == derived) != want {
			t.Errorf("the Event is named %s, and the name %d is %s", got, suffix, derived)
		}
	}
}

func TestForeignObjectIsLeftAlone(t *testing.T) {
	check(t, scenario{
		steps: []step{foreign(2), adds, settles, adds, settles},
		ends:  []string{"created", "merged"}, counted: 2, events: 3,
		then: named(2, true),
	})
}

// A series goes back to the first of its names when its Event is gone, and after none
// was free.
func TestSeriesGoesBackToItsFirstName(t *testing.T) {
	for name, occupied := range map[string]int{"its event is gone": 1, "none was free": identity.MaxSuffix + 1} {
		check(t, scenario{
			name:  name,
			steps: []step{foreign(occupied), adds, settles, expires, adds, settles},
			ends:  []string{"created", "created"}, counted: 2, events: 1,
			then: named(0, true),
		})
	}
}

// A name that can be derived is one that anybody can guess.
func TestSeriesWhoseNamesAreAllTakenGetsARandomOne(t *testing.T) {
	taken := func(from int) step {
		return func(w *world) {
			for suffix := from; suffix <= identity.MaxSuffix; suffix++ {
				squats(suffix, "no shares", nil)(w)
			}
		}
	}
	check(t, scenario{
		// The second writer does not find what the first has.
		name: "of each writer", writers: 2,
		steps: []step{taken(0), adds, settles, adds, settles, by(1, adds, settles)},
		ends:  []string{"created", "merged", "created"}, counted: 3, events: identity.MaxSuffix + 3,
		then: named(identity.MaxSuffix+1, false),
	}, scenario{
		name:  "and what was in doubt on an Event that it leaves is so no more",
		steps: []step{adds, losesAnswer, changes(noAnnotations), taken(1), adds, settles},
		ends:  []string{"uncertain", "created"}, counted: 2, events: identity.MaxSuffix + 2,
		then: named(identity.MaxSuffix+1, false),
	})
}
