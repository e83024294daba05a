package counter

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/occurrence"
)

// Whatever is lost, expires, is given up or restarted: an Event that was begun by who
// may patch is changed by nobody who may only create, and everything is accounted for.
func TestNobodyWhoMayOnlyCreateChangesAnEventUnderAnyInterleaving(t *testing.T) {
	limited := 0
	for seed := range uint64(100) {
		w := newWorld(t, seed, 3, false)
		changed := func() {
			for _, e := range w.server.Expired {
				w.untouched(e)
			}
			for e := range maps.Values(w.server.Objects) {
				w.untouched(e)
			}
		}
		dropOrForget := func(writer *writer) {
			if pending := writer.counter.pending; len(pending) > 0 {
				writer.take(writer.counter.Drop(pending[rand.IntN(len(pending))].Sequence, occurrence.RetriesExhausted, nil))
				return
			}
			writer.counter = &Counter{instance: writer.instance, digest: w.digest, Namespace: "ns", Object: "web-0"}
		}
		w.interleave(run{refusals: true, expire: w.expire, after: changed, drop: dropOrForget, report: func() {
			writer := w.writers[w.rng.IntN(len(w.writers))]
			switch w.rng.IntN(3) {
			case 0:
				writer.posts(owner, fmt.Sprint("o-", w.rng.IntN(20)), 2, 2)
			case 1:
				writer.posts(attacker, fmt.Sprint("a-", w.rng.IntN(20)), 1_000_000, 1_000_000)
			default:
				// Without a callback, it may share an entry.
				p := []poster{owner, attacker, another}[w.rng.IntN(3)]
				writer.add(&occurrence.Occurrence{Weight: 3, Client: p.name + fmt.Sprint(w.rng.IntN(9)), Total: 3, User: p.name, CreateOnly: p.createOnly}, p.claimed(false))
			}
		}})
		changed()
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
	if countOf(e) >= 1_000_000 || of(e.Labels) || of(e.Annotations) || e.Message != identity.CombinedPrefix+owner.name {
		w.t.Fatalf("the owner's Event has become %+v", e)
	}
}
