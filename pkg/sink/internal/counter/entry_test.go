package counter

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"k8s.io/utils/ptr"

	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/sinktest"
)

// What shares an entry is planned as if each had one of its own, whatever others
// have counted before.
func TestSharedEntryIsPlannedAsManyAre(t *testing.T) {
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 0))
		clients := 1 + rng.IntN(2*maxClients)
		client := func() string { return fmt.Sprint("client-", rng.IntN(clients)) }
		base := &observation{count: 1000}
		for range rng.IntN(maxClients) {
			base.contributors.clients = set(base.contributors.clients, clientKey(client()), uint64(rng.IntN(20)), maxClients)
		}
		together, apart := newWriter(t, occurrence.Digest{}), newWriter(t, occurrence.Digest{})
		apart.instance = together.instance
		for _, w := range []*writer{together, apart} {
			w.counter.observed, w.counter.instance = base, together.instance
		}
		for range rng.IntN(100) {
			o := occurrence.Occurrence{Weight: rng.Int64N(4)}
			if rng.IntN(4) > 0 {
				o.Client, o.Total = client(), o.Weight+rng.Int64N(12)
			}
			for range 1 + rng.IntN(3) { // raised, or a gap left
				one, other := o, o
				other.Settled = func(occurrence.Settlement) {}
				together.add(&one, sinktest.Event(false))
				apart.addAt(together.sequence, &other, sinktest.Event(false))
				o.Total += rng.Int64N(3)
			}
		}
		a, b := together.counter.plan(together.counter.batch()), apart.counter.plan(apart.counter.batch())
		if a.added != b.added || a.count != b.count || a.contributors.String() != b.contributors.String() {
			t.Fatalf("seed %d: together %d are added and\n%s, apart %d and\n%s", seed, a.added, a.contributors, b.added, b.contributors)
		}
		if n := len(together.counter.pending); n > 1 || together.counter.weight() != apart.counter.weight() {
			t.Fatalf("seed %d: %d entries of weight %d, want %d", seed, n, together.counter.weight(), apart.counter.weight())
		}
	}
}

// What shares an entry changes the Event as it would one after the other.
func TestSharedEntryKeepsWhatWasSaidLast(t *testing.T) {
	said := func(weight int64, labels, annotations map[string]string, combined bool) Entry {
		event := sinktest.Event(false)
		event.Labels, event.Annotations = labels, annotations
		e, _ := NewEntry(&occurrence.Occurrence{Event: event, Weight: weight}, &occurrence.Target{Event: event, Combined: combined})
		return e
	}
	a, b := map[string]string{"said": "first"}, map[string]string{"said": "last"}
	e := said(0, a, a, true)
	oldest := e.Oldest
	for i, next := range []Entry{said(2, b, nil, true), said(1, nil, b, false), said(1, nil, nil, false)} {
		next.Acknowledged = i == 0
		e.merge(&next)
	}
	if e.labels["said"] != "last" || e.annotations["said"] != "last" {
		t.Errorf("labels %v and annotations %v", e.labels, e.annotations)
	}
	c := map[string]string{"besides": "this"}
	e.merge(ptr.To(said(0, c, c, false)))
	if want := map[string]string{"said": "last", "besides": "this"}; !maps.Equal(e.labels, want) || !maps.Equal(e.annotations, want) || len(b) != 1 || len(c) != 1 {
		t.Errorf("labels %v and annotations %v", e.labels, e.annotations)
	}
	huge := map[string]string{"huge": strings.Repeat("x", maxAnnotations)}
	if e.merge(ptr.To(said(0, nil, huge, false))); !maps.Equal(e.annotations, huge) {
		t.Errorf("%d annotations that no Event could have", len(e.annotations))
	}
	if e.Weight != 4 || e.anonymous != 4 || !e.changes || !e.Acknowledged || e.Merged != occurrence.Merged || e.Oldest != oldest || e.Newest == oldest {
		t.Errorf("entry %+v", e)
	}
}

func TestOccurrencesNobodyWaitsForAreOneEntry(t *testing.T) {
	w := scenario{}.play(t)
	// report adds n occurrences, of which half are those of clients, and returns the number of entries.
	report := func(n int) int {
		for i := range n {
			o := &occurrence.Occurrence{Weight: 1}
			if i%2 == 0 {
				o.Client, o.Total = fmt.Sprint("client-", w.ours.sequence), 1
			}
			w.ours.add(o, w.event)
		}
		return len(w.ours.counter.pending)
	}
	entries := []int{report(1000)}
	begins(w)
	entries = append(entries, report(2)) // while a write carries the others
	adds(w)                              // awaited
	entries = append(entries, report(1))
	if !slices.Equal(entries, []int{1, 2, 4}) {
		t.Errorf("there are %v entries", entries)
	}
	settles(w)
	if written, _ := w.check(); written != 1004 || w.server.Counted() != 1004 {
		t.Errorf("written %d, counted %d", written, w.server.Counted())
	}
}

func TestUsualEventIsCountedAsOneToTwoKilobytes(t *testing.T) {
	w := scenario{}.play(t)
	w.record()
	if got := w.writers[0].counter.pending[0].Bytes; got < 1024 || got > 2048 {
		t.Errorf("%d bytes", got)
	}
}
