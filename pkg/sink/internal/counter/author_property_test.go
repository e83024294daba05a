package counter

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/occurrence"
)

const million = 1_000_000 // more than an owner ever counts

// Whatever is lost, expires, is given up or restarted: an Event that was begun by who
// may patch is changed by nobody who may only create, and everything is accounted for.
func TestNobodyWhoMayOnlyCreateChangesAnEventUnderAnyInterleaving(t *testing.T) {
	r := random{may: all, refusals: true, expiry: true}
	r.report = func(w *world) {
		p, total := []poster{owner, attacker, another}[w.rng.IntN(3)], int64(2)
		if p.createOnly {
			total = million
		}
		o := p.post(fmt.Sprint(p.name, w.rng.IntN(20)), total, total)
		o.Settled = w.awaited()
		w.writers[w.rng.IntN(len(w.writers))].add(&o, p.claimed(w.event))
	}
	r.drop = func(w *world, writer *writer) {
		w.ours = writer
		if pending := writer.counter.pending; len(pending) > 0 {
			writer.take(writer.counter.Drop(pending[w.rng.IntN(len(pending))].Sequence, occurrence.RetriesExhausted, nil))
		} else {
			forgets(w)
		}
	}
	r.after = func(w *world) {
		for _, e := range slices.Concat(w.server.Expired, slices.Collect(maps.Values(w.server.Objects))) {
			w.untouched(e)
		}
	}
	limited := 0
	for seed := range uint64(100) {
		w := r.run(t, seed, false)
		r.after(w)
		if w.forbidden() > 0 {
			limited++
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	if limited < 50 {
		t.Errorf("in %d runs only was anybody limited", limited)
	}
}

// untouched checks an Event that its owner has begun.
func (w *world) untouched(e *corev1.Event) {
	if e.OwnerReferences[0].Name != owner.name {
		return
	}
	of := func(m map[string]string) bool {
		return m["by"] == attacker.name || m["by"] == another.name || m[attacker.name] != "" || m[another.name] != ""
	}
	if countOf(e) >= million || of(e.Labels) || of(e.Annotations) || e.Message != identity.CombinedPrefix+owner.name {
		w.t.Fatalf("the owner's Event has become %+v", e)
	}
}
