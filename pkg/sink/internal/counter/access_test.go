package counter

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/pkg/occurrence"
)

var (
	all        = Access{Change: true}
	createOnly = Access{}
	unmarked   = Access{Change: true, Unmarked: true}
)

// Whatever the rights are and whatever admission removes: what is said to be written
// is stored, once.
func TestAccountsAgreeWithFewerRightsAndWithoutAnnotations(t *testing.T) {
	agree(t, []random{
		{name: "all rights", may: all, drop: giveUp},
		{name: "create only", may: createOnly},
		{name: "create only, and some are given up", may: createOnly, drop: giveUp},
		{name: "stripped, not known yet", may: all, strips: true, drop: giveUp, inDoubt: true},
		{name: "stripped", may: unmarked, strips: true},
		{name: "stripped, and some are given up", may: unmarked, strips: true, drop: giveUp},
		{name: "stripped, and they expire", may: unmarked, strips: true, expiry: true},
		{name: "stripped, create only", may: Access{Unmarked: true}, strips: true, drop: giveUp},
		{name: "forbidden to change anything after a while", may: all, then: &createOnly, inDoubt: true},
		{name: "found to be stripped after a while", may: all, strips: true, then: &unmarked, inDoubt: true},
		{name: "no more stripped", may: unmarked, drop: giveUp},
	})
}

func TestWhereAdmissionRemovesAnnotations(t *testing.T) {
	check(t, scenario{
		name:  "a client is counted once",
		steps: []step{strips(true), reports("client", 5), settles, reports("client", 5), settles},
		ends:  []string{"created", "replayed"}, counted: 5, events: 1,
	}, scenario{
		// A write that adds nothing to the count is not known by it.
		name: "a lost change is made again",
		steps: []step{strips(true), adds, writes, func(w *world) {
			event := w.event.DeepCopy()
			event.Labels = map[string]string{"l": "m"}
			w.add(occurrence.Occurrence{}, event)
		}, losesRequest, changes(func(*corev1.Event) {}), settles},
		ends: []string{"created", "merged"}, counted: 1, events: 1,
		then: hasLabel(0),
	}, scenario{
		// The patch puts the annotations there. What they say is true for everybody.
		name: "until it does no more", writers: 2,
		steps: []step{strips(true), adds, writes, strips(false), adds, losesAnswer,
			by(1, reports("client", 5)), settles, reports("client", 5), settles},
		ends: []string{"created", "merged", "merged", "replayed"}, counted: 2 + 5, events: 1,
	})
}
