package scheduler

import (
	"fmt"
	"testing"
	"time"

	"github.com/eventd/eventd/pkg/occurrence"
)

// A namespace whose answers are all slow, though there are some, has one place like
// one that answers nothing.
func TestNamespaceThatIsSlowOnAverageHasOnePlace(t *testing.T) {
	w := newAnswers(4, 100)
	other := w.load("other")
	for i := range 20 {
		w.answered("other", &other, true, w.now.Add(-time.Millisecond), w.now)
		if w.takes(3*time.Second, time.Millisecond); w.share(&w.ns, 0) == 1 {
			if w.limiter.size() != 100 {
				t.Errorf("%d slots in all", w.limiter.size())
			}
			return
		}
		t.Logf("%d slots after slow answer %d", w.share(&w.ns, 0), i)
	}
	t.Error("it keeps its slots")
}

func TestSlowNamespaceHasOnePlaceUntilItIsQuick(t *testing.T) {
	r := newNamespaceHealth(newLimiter(4, 100, time.Second))
	now := time.Unix(1000, 0)
	stuck, other := r.load("stuck"), r.load("other")
	r.limiter.inUse = 50
	for range 20 {
		began := now
		now = now.Add(10 * time.Second)
		r.answered("other", &other, true, now.Add(-time.Millisecond), now)
		r.answered("stuck", &stuck, false, began, now)
	}
	if r.limiter.size() != 100 || r.share(&stuck, 1) != 1 || r.share(&other, 0) != 37 || r.share(&other, 30) != 60 {
		t.Errorf("%d slots, slow namespace %+v, another %+v", r.limiter.size(), stuck, other)
	}
	r.store("stuck", stuck, now)
	r.store("other", other, now)
	if again := r.load("stuck"); r.share(&again, 1) != 1 {
		t.Error("it is forgotten while it has nothing to do")
	}
	for range 12 {
		r.answered("stuck", &stuck, true, now, now.Add(time.Millisecond))
	}
	if r.share(&stuck, 0) != 37 {
		t.Errorf("a namespace that is quick again: %+v", stuck)
	}
	if r.store("stuck", stuck, now); r.known.Len() != 0 {
		t.Errorf("%d namespaces are remembered for nothing", r.known.Len())
	}
}

// Who may create Events everywhere can make up names of namespaces: those push out
// nothing that is known of others.
func TestNamespacesThatAreMissingPushOutNone(t *testing.T) {
	r := newNamespaceHealth(newLimiter(4, 100, time.Second))
	now := time.Unix(1000, 0)
	slow, missing := r.load("slow"), r.load("missing")
	slow.decrease(1, now)
	missing.refusal = Refusal{Reason: occurrence.NamespaceNotFound, Until: now.Add(time.Second)}
	r.store("slow", slow, now)
	for i := range 3 * maxCached {
		r.store(fmt.Sprint("missing-", i), missing, now)
	}
	if got := r.load("slow"); !r.isDegraded(&got) {
		t.Error("it is forgotten that a namespace is slow")
	}
	if got := r.load(fmt.Sprint("missing-", 3*maxCached-1)); got.refusal != missing.refusal {
		t.Error("it is forgotten that a namespace is missing")
	}
	if n := r.known.Len() + r.refused.Len(); n > 2*maxCached {
		t.Errorf("%d namespaces are remembered", n)
	}
}
