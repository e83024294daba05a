package counter

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/test/sinktest"
)

// owned has an owner for the newest entry.
func owned(owner any) step {
	return func(w *world) { w.ours.counter.Newest().Owner = owner }
}

func TestWhatIsEvictedInDoubtIsUncertain(t *testing.T) {
	w := scenario{}.play(t)
	w.play([]step{adds, owned(w), losesAnswer, adds, owned(w)})
	c := w.ours.counter
	out := c.Evict(w)
	if len(out) != 2 || out[0].End.Outcome != occurrence.Uncertain || out[1].End.Outcome != occurrence.Dropped || c.inDoubt != 0 {
		t.Errorf("evicted %+v, %d is in doubt", out, c.inDoubt)
	}
	w.ours.take(out)
}

// Clients were answered by the former leader, if by anybody.
func TestWhatIsAdoptedAndEvictedWasAcknowledged(t *testing.T) {
	s := &succession{world: newWorld(t, 1, 1, false)}
	s.former, s.leader = newReplica(s.world), newReplica(s.world)
	s.do(s.former.writer, adds)
	if out := s.adopt().counter.Evict(nil); len(out) != 1 || out[0].End.Reason != occurrence.AcknowledgedEvicted {
		t.Errorf("evicted %+v", out)
	}
}

func TestEndsOfFewEvictedEntriesAreKept(t *testing.T) {
	w := scenario{}.play(t)
	for range 2 * maxEvicted {
		w.play([]step{adds, adds, owned(w)})
	}
	c := w.ours.counter
	begins(w)
	w.ours.take(c.Evict(w))
	if n := len(c.evicted); n != maxEvicted || c.evicted[n-1] <= c.pending[len(c.pending)-1].first {
		t.Errorf("%d ends are kept: %v", n, c.evicted)
	}
}

// What is in doubt stays so for entries that are not handed over.
func TestHandoverOfAPartLeavesTheRestInDoubt(t *testing.T) {
	w := scenario{}.play(t)
	w.play([]step{adds, adds, losesAnswer})
	c := w.ours.counter
	w.ours.take(c.HandOver(c.pending[0].Sequence))
	if c.inDoubt != c.Last() {
		t.Errorf("%d is in doubt of %d", c.inDoubt, c.Last())
	}
	w.ours.take(c.HandOver(c.Last()))
	if c.inDoubt != 0 {
		t.Errorf("%d is in doubt, though nothing is pending", c.inDoubt)
	}
}

// The rest of a total that may not be added is not counted.
func TestTotalOfALimitedEntryIsWhatItAdds(t *testing.T) {
	w := scenario{}.play(t)
	var totals []uint64
	w.ours.onSettled = func(out []Settled) {
		for i := range out {
			out[i].Totals(func(_ Contributor, n uint64) { totals = append(totals, n) })
		}
	}
	w.play([]step{adds, writes, asCreateOnly, writes})
	if len(totals) != 1 || totals[0] != 1 {
		t.Errorf("totals %v", totals)
	}
}

// Without its UID, it could not be told from another one later.
func TestEventWithoutUIDAndAnnotationsIsNotKnown(t *testing.T) {
	w := scenario{}.play(t)
	adds(w)
	f := w.request()
	w.do(f)
	answer := sinktest.Event(false)
	answer.Name, answer.ResourceVersion = f.r.Name, "1"
	w.ours.take(w.ours.counter.Succeeded(f.r, answer))
	if w.ours.counter.IsStored() {
		t.Error("it is known")
	}
}

func TestWhatIsRefusedOrDropped(t *testing.T) {
	check(t, scenario{
		name:  "all that is pending, if it may not even be read",
		steps: []step{adds, isRefused(Create, errExists), adds, isRefused(Read, errForbidden)},
		ends:  []string{"dropped forbidden", "dropped forbidden"},
	}, scenario{
		// What comes later could not be told from the write in doubt.
		name:  "a write in doubt without annotations",
		steps: []step{strips(true), adds, writes, adds, losesAnswer, drops, adds, settles},
		ends:  []string{"created", "uncertain", "created"}, counted: 3, events: 2,
	})
}

// A list that is full of others decides about a create that has failed, and about a patch of an
// Event that has gone.
func TestWriteInDoubtIsDecidedByWhoseTheEventIs(t *testing.T) {
	check(t, scenario{
		name: "created by others", writers: 1 + maxSinks,
		steps: []step{othersWrite, rewrites(withoutPushedOut), adds, losesRequest, settles},
		ends:  []string{"merged"}, counted: maxSinks + 1, events: 1,
	}, scenario{
		name: "in place of its own", writers: 1 + maxSinks,
		steps: []step{adds, writes, adds, losesRequest, expires, othersWrite, rewrites(withoutPushedOut), settles},
		ends:  []string{"created", "merged"}, counted: maxSinks + 2, events: 1,
	})
}

// Those that were pushed out are remembered, though somebody has made room in the list of sinks.
func TestPushedOutAreRememberedWhileThereIsRoom(t *testing.T) {
	s := contributors{pushedOut: []Contributor{numbered(99)}}
	for i := range maxSinks {
		s = s.write(numbered(i), 1)
	}
	if !s.mayHavePushedOut(numbered(99)) || s.mayHavePushedOut(numbered(98)) {
		t.Errorf("%s", s)
	}
}

// The count of a new-style Event is that of its series, which a single occurrence does not have.
func TestSingleOccurrenceHasNoSeries(t *testing.T) {
	w := newWorld(t, 1, 1, true)
	w.play([]step{says(func(e *corev1.Event) {
		if e.Series == nil {
			t.Fatal("no series is reported")
		}
	})})
	if e := w.request().r.Event; e.Series != nil {
		t.Errorf("it has a count of %d", e.Series.Count)
	}
}
