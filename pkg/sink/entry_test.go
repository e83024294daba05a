package sink

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	"k8s.io/utils/ptr"

	"github.com/eventd/eventd/pkg/occurrence"
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
			base.shares.clients = set(base.shares.clients, clientKey(client()), uint64(rng.IntN(20)), maxClients)
		}
		together, apart := newWriter(occurrence.Digest{}), newWriter(occurrence.Digest{})
		apart.instance = together.instance
		for _, w := range []*writer{together, apart} {
			w.series.account.observed, w.series.account.instance = base, together.instance
		}
		for range rng.IntN(100) {
			o := occurrence.Occurrence{Weight: rng.Int64N(4)}
			if rng.IntN(4) > 0 {
				o.Client, o.Total = client(), o.Weight+rng.Int64N(12)
			}
			for range 1 + rng.IntN(3) { // raised, or a gap left
				one, other := o, o
				other.Settled = func(occurrence.Settlement) {}
				together.add(&one, testEvent(false))
				apart.addAt(together.sequence, &other, testEvent(false))
				o.Total += rng.Int64N(3)
			}
		}
		a, b := together.series.account.plan(), apart.series.account.plan()
		if a.added != b.added || a.count != b.count || a.shares.String() != b.shares.String() {
			t.Fatalf("seed %d: together %d are added and\n%s, apart %d and\n%s", seed, a.added, a.shares, b.added, b.shares)
		}
		if n := len(together.series.account.pending); n > 1 || together.series.account.weight() != apart.series.account.weight() {
			t.Fatalf("seed %d: %d entries of weight %d, want %d", seed, n, together.series.account.weight(), apart.series.account.weight())
		}
	}
}

// What shares an entry changes the Event as it would one after the other.
func TestSharedEntryKeepsWhatWasSaidLast(t *testing.T) {
	said := func(weight int64, labels, annotations map[string]string, combined bool) entry {
		event := testEvent(false)
		event.Labels, event.Annotations = labels, annotations
		e, _ := newEntry(&occurrence.Occurrence{Event: event, Weight: weight}, &occurrence.Target{Event: event, Combined: combined})
		return e
	}
	a, b := map[string]string{"said": "first"}, map[string]string{"said": "last"}
	e := said(0, a, a, true)
	oldest := e.oldest
	for _, next := range []entry{said(2, b, nil, true), said(1, nil, b, false), said(1, nil, nil, false)} {
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
	huge := map[string]string{"huge": strings.Repeat("x", maxSaid)}
	if e.merge(ptr.To(said(0, nil, huge, false))); !maps.Equal(e.annotations, huge) {
		t.Errorf("%d annotations that no Event could have", len(e.annotations))
	}
	if e.weight != 4 || e.anonymous != 4 || !e.changes || e.merged != occurrence.Merged || e.oldest != oldest || e.newest == oldest {
		t.Errorf("entry %+v", e)
	}
}

func TestUsualEventIsCountedAsOneToTwoKilobytes(t *testing.T) {
	w := quiet(t, false)
	w.record()
	if got := w.writers[0].series.account.pending[0].bytes; got < 1024 || got > 2048 {
		t.Errorf("%d bytes", got)
	}
}
