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
		posts := func(writer *writer) {
			switch w.rng.IntN(3) {
			case 0:
				writer.posts(owner, fmt.Sprint("o-", w.rng.IntN(20)), 2, 2)
			case 1:
				writer.posts(attacker, fmt.Sprint("a-", w.rng.IntN(20)), 1_000_000, 1_000_000)
			default:
				// Nobody waits: it may share an entry.
				p := []poster{owner, attacker, another}[w.rng.IntN(3)]
				writer.add(&occurrence.Occurrence{Weight: 3, Client: p.name + fmt.Sprint(w.rng.IntN(9)), Total: 3, User: p.name, CreateOnly: p.createOnly}, p.claimed(false))
			}
		}
		for range 200 {
			writer := w.writers[w.rng.IntN(len(w.writers))]
			switch n := w.rng.IntN(100); {
			case n < 25:
				posts(writer)
			case n < 55:
				w.start(writer)
			case n < 90:
				w.finish(true)
			case n < 95:
				w.arrive()
			case n < 97:
				w.expire()
			case n < 98:
				if !writer.busy && len(writer.counter.pending) > 0 {
					oldest := writer.counter.pending[rand.IntN(len(writer.counter.pending))].Sequence
					writer.take(writer.counter.Drop(oldest, occurrence.RetriesExhausted, nil))
				}
			case n < 99:
				if !writer.busy && len(writer.counter.pending) == 0 { // forgotten
					writer.counter = &Counter{instance: writer.instance, digest: w.digest, Namespace: "ns", Object: "web-0"}
				}
			}
			changed()
		}
		w.settleDown()
		changed()
		written, uncertain := w.check()
		if counted := w.server.Counted(); counted < written || counted > written+uncertain+w.slack {
			t.Errorf("counted %d, written %d, uncertain %d, possibly on two objects %d", counted, written, uncertain, w.slack)
		}
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
