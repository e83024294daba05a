package scheduler

import (
	"fmt"
	"testing"
	"time"

	"github.com/eventd/eventd/pkg/occurrence"
)

// A namespace that is slow while another is not has one slot, if its answers are missing and
// if they are slow on average, until it is quick again.
func TestSlowNamespaceHasOneSlotUntilItIsQuick(t *testing.T) {
	for name, answer := range map[string]bool{"missing answers": false, "slow answers": true} {
		t.Run(name, func(t *testing.T) {
			a := newAnswers(t, 4, 100)
			a.limiter.inUse = 50
			for range 20 {
				began := a.now
				a.now = a.now.Add(3 * time.Second)
				a.otherIsPrompt()
				a.answered("ns", &a.ns, answer, began, a.now)
			}
			a.wantSize(100)
			want := func(h *health, inUse, want int) {
				t.Helper()
				if got := a.share(h, inUse); got != want {
					t.Errorf("%d slots for %+v, which uses %d, want %d", got, h, inUse, want)
				}
			}
			want(&a.ns, 1, 1)
			want(&a.other, 0, 37)
			want(&a.other, 30, 60)
			a.store("ns", a.ns, a.now)
			a.store("other", a.other, a.now)
			a.ns = a.load("ns") // also while it is idle
			want(&a.ns, 1, 1)
			for range 12 {
				a.takes(time.Millisecond, 0)
			}
			want(&a.ns, 0, 37)
			if a.store("ns", a.ns, a.now); a.known.Len() != 0 {
				t.Errorf("%d healthy namespaces are cached", a.known.Len())
			}
		})
	}
}

// Whoever may create Events in all namespaces can invent names of namespaces. Those evict
// nothing that is known of others.
func TestNamespacesThatAreMissingPushOutNone(t *testing.T) {
	a := newAnswers(t, 4, 100)
	a.ns.decrease(1, a.now)
	a.store("ns", a.ns, a.now)
	missing := a.load("missing")
	missing.refusal = Refusal{Reason: occurrence.NamespaceNotFound, Until: a.now.Add(time.Second)}
	for i := range 3 * maxCached {
		a.store(fmt.Sprint("missing-", i), missing, a.now)
	}
	if got := a.load("ns"); !a.isDegraded(&got) {
		t.Error("it is not cached that a namespace is slow")
	}
	if got := a.load(fmt.Sprint("missing-", 3*maxCached-1)); got.refusal != missing.refusal {
		t.Error("it is not cached that a namespace is missing")
	}
	if n := a.known.Len() + a.refused.Len(); n > 2*maxCached {
		t.Errorf("%d namespaces are cached", n)
	}
}
