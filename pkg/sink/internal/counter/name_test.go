package counter

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/internal/identity"
)

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
