package counter

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/sinktest"
)

func TestAccountsAgreeUnderAnyInterleaving(t *testing.T) {
	const seeds = 300
	for _, test := range []struct {
		name                      string
		writers, clients          int
		newStyle                  bool
		refusals, expiry, giveUps bool
	}{
		{name: "anonymous", writers: 4},
		{name: "new style", writers: 4, newStyle: true},
		{name: "clients", writers: 4, clients: 5},
		{name: "refusals", writers: 4, clients: 5, refusals: true},
		{name: "give-ups", writers: 4, clients: 5, giveUps: true},
		{name: "expiry", writers: 4, clients: 5, expiry: true},
		{name: "more writers and clients than are remembered", writers: 2 * maxSinks, clients: 2 * maxClients, giveUps: true},
		{name: "everything", writers: maxSinks, clients: maxClients, refusals: true, expiry: true, giveUps: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(seeds) {
				w := newWorld(t, seed, test.writers, test.newStyle)
				w.addsWhilePlanned = 50
				r := run{refusals: test.refusals, report: func() {
					if test.clients > 0 && w.rng.IntN(2) == 0 {
						w.report(test.clients)
					} else {
						w.record()
					}
				}}
				if test.expiry {
					r.expire = w.expire
				}
				if test.giveUps {
					r.drop = giveUp
				}
				uncertain := w.interleave(r)
				for _, writer := range w.writers {
					if n := writer.settled[occurrence.Replayed]; n != 0 && test.clients == 0 {
						t.Errorf("%d settled as replayed, though no client has reported anything", n)
					}
				}
				if uncertain != 0 && !test.giveUps && !test.refusals {
					t.Errorf("%d uncertain, though nobody gave up", uncertain)
				}
				if n := len(w.server.Objects); n > 1 && !test.refusals { // else one may have been left
					t.Errorf("%d objects", n)
				}
				if t.Failed() {
					t.Fatalf("seed %d", seed)
				}
			}
		})
	}
}

// Clients alone: whatever they repeat and through whomever, what is stored is
// exactly the sum of their totals.
func TestClientsAreCountedOnce(t *testing.T) {
	for seed := range uint64(300) {
		w := newWorld(t, seed, 4, seed%2 == 0)
		w.interleave(run{report: func() { w.report(maxClients) }})
		var totals int64
		for _, total := range w.clients {
			totals += total
		}
		if counted := w.server.Counted(); counted != totals {
			t.Fatalf("seed %d: counted %d, clients reported %d", seed, counted, totals)
		}
	}
}

func TestRaisedTotalAddsItsDifferenceAfterItsEntryIsGone(t *testing.T) {
	w := faultless(t, 1)
	for i := range maxClients + 1 {
		client := fmt.Sprint("client-", i)
		w.clients[client] = 5
		w.reportTo(w.writers[0], client)
		w.settleDown()
	}
	w.clients["client-0"] = 7
	w.reportTo(w.writers[0], "client-0")
	w.settleDown()
	if got, want := w.server.Counted(), int64(5*(maxClients+1)+2); got != want {
		t.Errorf("counted %d, want %d", got, want)
	}
}

func TestCountSaturates(t *testing.T) {
	w := faultless(t, 1)
	w.writers[0].add(&occurrence.Occurrence{Weight: math.MaxInt32 + 1}, w.event)
	w.settleDown()
	if got := w.server.Counted(); got != math.MaxInt32 {
		t.Errorf("counted %d", got)
	}
}

// What an Event's count cannot take goes on with the next one.
func TestCountThatIsTooHighGoesOnWithAnotherEvent(t *testing.T) {
	w := quiet(t, false)
	for _, weight := range []int64{math.MaxInt32 - 1, 1, 1, 2} {
		w.writers[0].add(&occurrence.Occurrence{Weight: weight}, w.event)
		w.settleDown()
	}
	written, _ := w.check()
	if got := w.server.Counted(); got != math.MaxInt32+3 || written != got || len(w.server.Objects) != 2 {
		t.Errorf("counted %d, written %d, in %d Events", got, written, len(w.server.Objects))
	}
}

func TestForeignObjectIsLeftAlone(t *testing.T) {
	w := faultless(t, 2)
	var foreign []*corev1.Event
	for suffix := range 2 {
		e := sinktest.Event(false)
		e.Name = identity.Name(e.InvolvedObject.Name, w.digest, suffix)
		e.Annotations = map[string]string{identity.Annotation: "another"}
		foreign = append(foreign, w.server.Store(e))
	}
	for range 5 {
		w.record()
		w.settleDown()
	}
	written, _ := w.check()
	for _, e := range foreign {
		if now := w.server.Objects[e.Name]; now.ResourceVersion != e.ResourceVersion {
			t.Errorf("foreign object %s was written", e.Name)
		}
	}
	ours := w.server.Objects[identity.Name("web-0", w.digest, 2)]
	if ours == nil || countOf(ours) != written {
		t.Errorf("want a count of %d on the first free name, got %v", written, ours)
	}
}

// A write that the client library or a proxy sent twice: the first attempt took
// effect, and only the conflict of the second is heard of.
func TestWriteThatWasSentTwiceIsCountedOnce(t *testing.T) {
	w := faultless(t, 2)
	for i := range 6 {
		w.record()
		for _, writer := range w.writers {
			if w.start(writer) {
				f := w.flights[0]
				w.flights = nil
				if i%2 == 0 {
					do(w.server, f.r)
				}
				object, err := do(w.server, f.r)
				w.answer(f, object, err)
			}
		}
		w.settleDown()
	}
	written, uncertain := w.check()
	if counted := w.server.Counted(); counted != written || uncertain != 0 || w.writers[0].settled[occurrence.Replayed] != 0 {
		t.Errorf("counted %d, written %d, uncertain %d", counted, written, uncertain)
	}
}

// A list that is full of instances that are long gone decides as well as one
// with room.
func TestLostWriteIsDecidedThoughTheListIsFull(t *testing.T) {
	for name, test := range map[string]struct{ effect bool }{"lost on the way": {false}, "took effect": {true}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1, maxSinks+1, false)
			w.faults = 0
			lost := apierrors.NewInternalError(errors.New("lost"))
			for i, writer := range w.writers {
				writer.add(&occurrence.Occurrence{Weight: 1}, w.event)
				if i < maxSinks {
					w.settleDown()
					continue
				}
				// The new instance's first write and its first patch are lost.
				for range 3 {
					w.start(writer)
					f := w.flights[0]
					w.flights = nil
					if f.r.Kind == Read {
						object, err := do(w.server, f.r)
						w.answer(f, object, err)
						continue
					}
					if test.effect {
						do(w.server, f.r)
					}
					w.answer(f, nil, lost)
				}
			}
			w.settleDown()
			written, uncertain := w.check()
			if counted := w.server.Counted(); counted != written || uncertain != 0 || written != maxSinks+1 {
				t.Errorf("counted %d, written %d, uncertain %d", counted, written, uncertain)
			}
		})
	}
}

func TestManyClientsContinueAfterTheirEventdIsGone(t *testing.T) {
	w := faultless(t, 2)
	for _, writer := range w.writers { // the second does not know the first's views
		for i := range 40 {
			client := fmt.Sprint("client-", i)
			w.clients[client] += 5
			w.reportTo(writer, client)
		}
		w.settleDown()
	}
	if got := w.server.Counted(); got != 40*10 {
		t.Errorf("counted %d, want %d", got, 40*10)
	}
}

// An entry says what any of its occurrences does.
func TestMergedEntryChangesAndIsAcknowledgedIfAnyOccurrenceIs(t *testing.T) {
	for _, first := range []bool{false, true} {
		for _, second := range []bool{false, true} {
			e := Entry{changes: first, Acknowledged: first}
			e.merge(&Entry{changes: second, Acknowledged: second})
			if want := first || second; e.changes != want || e.Acknowledged != want {
				t.Errorf("%t and %t: changes %t, acknowledged %t", first, second, e.changes, e.Acknowledged)
			}
		}
	}
}

// The owner's lock is not held while a request is planned.
func TestOccurrencesAreAddedWhileARequestIsPlanned(t *testing.T) {
	w := quiet(t, false)
	writer := w.writers[0]
	add := func(n int) {
		for range n {
			writer.add(&occurrence.Occurrence{Weight: 1, Client: "client", Total: writer.recorded + 1}, w.event)
		}
	}
	add(100)
	d, _ := writer.counter.Begin(w.may)
	var planned sync.WaitGroup
	planned.Go(d.Plan)
	add(100)
	planned.Wait()
	r, out := writer.counter.Commit(d)
	if r == nil || len(out) > 0 || r.plan.added != 100 {
		t.Fatalf("the request is %+v, and %d entries have settled", r, len(out))
	}
	object, err := do(w.server, r)
	w.answer(flight{writer, r}, object, err)
	w.settleDown()
	if written, _ := w.check(); written != 200 || w.server.Counted() != 200 {
		t.Errorf("written %d, counted %d", written, w.server.Counted())
	}
}
