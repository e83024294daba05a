package counter

import (
	"fmt"
	"math"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/test/seeds"
)

// agree runs worlds with many seeds, in both styles.
func agree(t *testing.T, tests []random) {
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			for seed := range seeds.Of(300) {
				w := test.run(t, seed, seed%2 == 0)
				for _, writer := range w.writers {
					if n := writer.settled[occurrence.Replayed]; n != 0 && test.clients == 0 {
						t.Errorf("%d settled as replayed, though no client has reported anything", n)
					}
				}
				shared := test.may == all && !test.strips && test.then == nil
				if n := len(w.server.Objects); n > 1 && shared && !test.refusals { // else one may have been left
					t.Errorf("%d objects", n)
				}
				if t.Failed() {
					t.Fatalf("seed %d", seed)
				}
			}
		})
	}
}

func TestAccountsAgreeUnderAnyInterleaving(t *testing.T) {
	agree(t, []random{
		{name: "anonymous", writers: 4, may: all},
		{name: "clients", writers: 4, clients: 5, may: all},
		{name: "refusals", writers: 4, clients: 5, may: all, refusals: true},
		{name: "give-ups", writers: 4, clients: 5, may: all, drop: giveUp},
		{name: "expiry", writers: 4, clients: 5, may: all, expiry: true},
		{name: "more writers and clients than are remembered",
			writers: 2 * maxSinks, clients: 2 * maxClients, may: all, drop: giveUp},
		{name: "everything",
			writers: maxSinks, clients: maxClients, may: all, refusals: true, expiry: true, drop: giveUp},
	})
}

// Clients alone: whatever they repeat and through whomever, what is stored is
// exactly the sum of their totals.
func TestClientsAreCountedOnce(t *testing.T) {
	r := random{writers: 4, may: all, report: func(w *world) { w.report(maxClients) }}
	for seed := range seeds.Of(300) {
		w := r.run(t, seed, seed%2 == 0)
		var totals int64
		for _, total := range w.clients {
			totals += total
		}
		if counted := w.server.Counted(); counted != totals {
			t.Fatalf("seed %d: counted %d, clients reported %d", seed, counted, totals)
		}
	}
}

// raises reports the new total of a client, through a writer that may know its last one.
func raises(client string, by int64) step {
	return func(w *world) {
		w.clients[client] += by
		w.reportTo(w.ours, client)
	}
}

// manyRaise has more clients than are remembered raise their totals.
func manyRaise(w *world) {
	for i := range maxClients + 1 {
		raises(fmt.Sprint("client-", i), 5)(w)
		w.settleDown()
	}
}

func TestCount(t *testing.T) {
	check(t, scenario{
		name:  "saturates",
		steps: []step{addsMany(math.MaxInt32 + 1), settles},
		ends:  []string{"created"}, counted: math.MaxInt32, events: 1,
	}, scenario{
		name: "goes on with another Event when it would be too high",
		steps: []step{addsMany(math.MaxInt32 - 1), settles, addsMany(1), settles,
			addsMany(1), settles, addsMany(2), settles},
		ends: []string{"created", "merged", "created", "merged"}, counted: math.MaxInt32 + 3, events: 2,
	}, scenario{
		name:    "grows by the difference of a total that is raised, though its client is forgotten",
		steps:   []step{manyRaise, raises("client-0", 2), settles},
		counted: 5*(maxClients+1) + 2, events: 1,
	})
}

// As by a client library or a proxy. Only the conflict of the second attempt is heard of.
func TestWriteThatWasSentTwiceIsCountedOnce(t *testing.T) {
	check(t, scenario{
		writers: 2,
		steps: []step{adds, isSentTwice, settles, adds, by(1, adds, sends), settles,
			adds, isSentTwice, by(1, adds, isSentTwice), settles},
		ends: []string{"created", "merged", "merged", "merged", "merged"}, counted: 5, events: 1,
	})
}

// A list that is full of instances that are long gone decides as well as one
// with room.
func TestLostWriteIsDecidedThoughTheListIsFull(t *testing.T) {
	for name, loses := range map[string]step{"lost on the way": losesRequest, "took effect": losesAnswer} {
		check(t, scenario{
			name: name, writers: maxSinks + 1,
			// Our first write and its first patch are lost.
			steps: []step{othersWrite, adds, loses, sends, loses, settles},
			ends:  []string{"merged"}, counted: maxSinks + 1, events: 1,
		})
		check(t, scenario{
			// By an older release. One of them writes again, and the others are still there.
			name: name + ", nobody is recorded", writers: maxSinks + 1,
			steps: []step{othersWrite, rewrites(withoutPushedOut), adds, sends, sends, losesRequest, by(1, adds, writes),
				rewrites(withoutPushedOut), settles},
			ends: []string{"merged", "merged"}, counted: maxSinks + 2, events: 1,
		})
	}
}

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
