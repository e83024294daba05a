package counter

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/test/sinktest"
)

// followed returns a replica with a follower, whose entries have Generations.
func followed(t *testing.T) (w *world, leader, follower *replica) {
	w = newWorld(t, 1, 1, false)
	leader, follower = newReplica(w), newReplica(w)
	leader.connect(follower)
	leader.batch(follower)
	leader.deliver(follower, true)
	return w, leader, follower
}

// An entry that a follower may hold alone stays as it is until the follower has what comes next.
func TestCutsStayWhileAFollowerMayBeAtThem(t *testing.T) {
	w, leader, follower := followed(t)
	add := func() { leader.add(&occurrence.Occurrence{Weight: 1}, w.event) }
	want := func(n int, when string) {
		t.Helper()
		if got := len(leader.counter.pending); got != n {
			t.Errorf("%d entries %s, want %d", got, when, n)
		}
	}
	add()
	add()
	want(1, "that were not sent")
	leader.batch(follower)
	add()
	want(2, "after the first was sent")
	leader.deliver(follower, true)
	add()
	want(2, "while the second was not sent")
	leader.batch(follower)
	add()
	want(3, "while the second was not acknowledged")
	leader.deliver(follower, true)
	leader.batch(follower)
	leader.deliver(follower, true)
	add()
	want(2, "once all were acknowledged")
	add()
	want(2, "which were not sent")
	leader.disconnect(follower, false)
	add()
	add()
	want(2, "after the stream has ended")
}

// Whatever is merged and joined, the owner's accounts are those of the entries, and an occurrence
// that is said to need no memory takes none.
func TestGrowthIsThatOfTheEntries(t *testing.T) {
	w, leader, follower := followed(t)
	owners := []any{nil, "a", "b"}
	bytes, entries, absorbed, left, size := map[any]int64{}, map[any]int{}, 0, 0, 0
	generations := map[uint64]bool{}
	events := []*corev1.Event{w.event, w.event.DeepCopy(), w.event.DeepCopy()}
	events[1].Labels, events[2].Annotations = map[string]string{}, map[string]string{"a": strings.Repeat("b", 1000)}
	for i := range 9 {
		events[1].Labels[fmt.Sprint(i)] = "c"
	}
	var draft *Draft
	var owner any
	for n := uint64(1); n < 3000; n++ {
		o := occurrence.Occurrence{Weight: 1, Event: events[w.rng.IntN(len(events))].DeepCopy()}
		if w.rng.IntN(2) == 0 {
			o.Client, o.Total = "client", int64(n)
		}
		e, claim := NewEntry(&o, &occurrence.Target{Event: o.Event})
		if w.rng.IntN(20) == 0 {
			owner = owners[w.rng.IntN(len(owners))]
		}
		e.Owner = owner
		absorbs := n > 1 && leader.counter.Absorbs(n, 0, e, claim)
		leader.sequence, size = n, leader.counter.Size()+leader.counter.GrowthOf(0, &e, claim)
		g := leader.counter.Add(n, 0, &e, claim)
		if absorbs {
			absorbed++
		}
		if leader.counter.Size() > size {
			t.Fatalf("%d makes the size %d, want %d at most", n, leader.counter.Size(), size)
		}
		if absorbs && g.Bytes > 0 || g.Bytes > leader.counter.Newest().Bytes {
			t.Fatalf("%d takes %d bytes", n, g.Bytes)
		}
		if g.IsNew {
			leader.counter.Newest().Generation = n
			generations[n] = true
		}
		for _, gone := range g.Left {
			delete(generations, gone)
			left++
		}
		bytes[e.Owner] += g.Bytes
		entries[e.Owner] += g.Entries
		switch w.rng.IntN(8) {
		case 0:
			leader.batch(follower)
		case 1:
			leader.deliver(follower, true)
		case 2:
			if draft == nil {
				draft, _ = leader.counter.Begin(all)
			} else {
				leader.counter.Commit(draft) // it is never planned
				draft = nil
			}
		}
	}
	for _, list := range [][]Entry{leader.counter.pending, leader.counter.late} {
		for _, e := range list {
			bytes[e.Owner] -= e.Bytes
			entries[e.Owner]--
			delete(generations, e.Generation)
		}
	}
	for _, owner := range owners {
		if bytes[owner] != 0 || entries[owner] != 0 {
			t.Errorf("owner %v has %d bytes and %d entries more than are pending", owner, bytes[owner], entries[owner])
		}
	}
	if len(generations) > 0 || absorbed < 100 || left < 100 {
		t.Errorf("%d generations have not left; %d absorbed, %d joined", len(generations), absorbed, left)
	}
}

func TestJoinedEntryHasTheMemoryOfBoth(t *testing.T) {
	event := func() *Entry {
		e, _ := NewEntry(&occurrence.Occurrence{Weight: 1}, &occurrence.Target{Event: newWorld(t, 1, 1, false).event})
		e.measure()
		return &e
	}
	first, next, large := event(), event(), event()
	first.addClaim(Claim{numbered(1), 1, 1})
	next.addClaim(Claim{numbered(1), 2, 1}) // it becomes part of that
	next.addClaim(Claim{numbered(2), 1, 1})
	first.measure()
	before, content := first.Bytes+next.Bytes, first.Newest.bytes
	if more := first.joinedBytes(next); more != first.join(next) || first.Bytes != before+more || first.Bytes != entryBytes+2*content+2*claimBytes {
		t.Errorf("%d bytes, %d more than both, of Events of %d", first.Bytes, more, content)
	}
	large.claims = make([]Claim, MaxBatch-2)
	large.measure()
	for n, admits := range map[int]bool{1: true, 2: false} {
		next.claims = next.claims[:n]
		next.measure()
		if large.admits(next) != admits {
			t.Errorf("an entry with %d claims is joined: %t", n, !admits)
		}
	}
}

func TestAcknowledgedEntryHasNoCallback(t *testing.T) {
	w, leader, _ := followed(t)
	leader.add(&occurrence.Occurrence{Weight: 1}, w.event)
	for range 2 {
		leader.add(&occurrence.Occurrence{Weight: 1, Settled: func(occurrence.Settlement) { t.Error("it is called") }}, w.event)
	}
	leader.add(&occurrence.Occurrence{Weight: 1}, w.event)
	leader.add(&occurrence.Occurrence{Weight: 1}, w.event) // part of the one before
	c := leader.counter
	inside := c.pending[3].first
	first := c.pending[0].Sequence
	leader.take(c.HandOver(first))
	for i, test := range []struct {
		sequence uint64
		found    *Entry
	}{
		{first, nil}, {c.pending[0].Sequence, &c.pending[0]}, {c.pending[1].Sequence, &c.pending[1]},
		{inside, &c.pending[2]}, {c.Last(), &c.pending[2]}, {c.Last() + 1, nil},
	} {
		if e := c.Acknowledge(test.sequence); e != test.found || e != nil && (e.Notify != nil || !e.Acknowledged) {
			t.Errorf("%d: %d finds %+v, want %+v", i, test.sequence, e, test.found)
		}
	}
	for _, f := range []func(){func() { w.start(leader.writer) }, func() { w.finish(false) }} {
		w.faults = 0
		f()
	}
	if leader.settled[occurrence.HandedOver] != 1 || leader.written() != 4 {
		t.Errorf("settled %v", leader.settled)
	}
}

// What is handed over stays with followers, also what is in doubt.
func TestHandedOverStaysHeld(t *testing.T) {
	w, leader, follower := followed(t)
	w.ours = leader.writer
	leader.add(&occurrence.Occurrence{Weight: 2}, w.event)
	losesRequest(w)
	leader.take(leader.counter.HandOver(math.MaxUint64))
	if s := leader.streams[follower]; len(s.changes) != 1 || s.changes[0].Addition == nil || leader.settled[occurrence.HandedOver] != 2 || leader.counter.inDoubt != 0 {
		t.Errorf("changes %+v, settled %v", s.changes, leader.settled)
	}
}

// What a follower holds is written as the contributor would write it.
func TestHeldEntriesAreWrittenAsByTheContributor(t *testing.T) {
	w := newWorld(t, 1, 1, false)
	raised, combined, newStyle := w.event.DeepCopy(), w.event.DeepCopy(), newWorld(t, 1, 1, true).event
	raised.Message, combined.Message = "image pulled again", "my own summary"
	raised.Labels, combined.Annotations = map[string]string{"a": "b"}, map[string]string{"c": "d"}
	for name, target := range map[string]occurrence.Target{
		"classic":           {Event: w.event},
		"changed since":     {Event: raised, Begun: w.event},
		"new style":         {Event: newStyle},
		"combined":          {Event: combined, Combined: true},
		"combined by a key": {Event: combined, Combined: true, Digest: identity.OfGroup(combined, "key")},
	} {
		_, leader, follower := followed(t)
		target.Name = "web-0"
		leader.counter = New(leader.instance, &target, leader)
		leader.disconnect(follower, true)
		leader.connect(follower)
		labelled := target.Event.DeepCopy()
		labelled.Labels, labelled.Annotations = map[string]string{"later": "label"}, map[string]string{"later": "annotation"}
		labelled.Source.Host, labelled.FirstTimestamp = "first", metav1.Unix(1, 0)
		for i, event := range []*corev1.Event{labelled, target.Event, labelled, target.Event} {
			o := occurrence.Occurrence{Event: event, Weight: 2, Client: "a", Total: int64(2 * i), Recorded: time.Unix(1_700_000_000, 0), API: occurrence.EventsV1}
			if i == 2 { // the one that it is merged with is late
				event = event.DeepCopy()
				at(time.Hour)(event)
			}
			t := target
			t.Event = event
			e, claim := NewEntry(&o, &t)
			leader.sequence++
			leader.counter.Add(leader.sequence, 0, &e, claim)
			if i == 1 { // the two that follow are merged
				leader.batch(follower)
				leader.deliver(follower, true)
			}
		}
		if changes := leader.streams[follower].changes; len(changes) != 2 || !changes[1].Addition.Merged {
			t.Errorf("%s: changes %+v", name, changes)
		}
		heir := func() *Counter {
			leader.batch(follower)
			leader.deliver(follower, true)
			h := follower.held[leader.instance]
			return Adopt(leader.instance, h.Series(), h.Records(), nil)
		}
		heirs := []*Counter{heir()}
		leader.disconnect(follower, false)
		leader.connect(follower)
		heirs = append(heirs, heir())
		write := func(c *Counter) *Request {
			d, _ := c.Begin(all)
			d.Plan()
			r, _ := c.Commit(d)
			return r
		}
		own := write(leader.counter)
		if last := (&Content{Event: own.Event}).lastTime(); !last.Equal(noon.Add(time.Hour)) {
			t.Errorf("%s: last seen at %v", name, last)
		}
		for _, heir := range heirs {
			if theirs := write(heir); own.Event.String() != theirs.Event.String() || own.Name != theirs.Name || own.API != theirs.API {
				t.Errorf("%s: written as\n%s %v\nand by the contributor as\n%s %v", name, theirs.Event, theirs.API, own.Event, own.API)
			}
		}
	}
}

// A follower knows the Event of the newest entry.
func TestEventIsNotSentAgain(t *testing.T) {
	w, leader, follower := followed(t)
	for n := range uint64(2) {
		e, claim := NewEntry(&occurrence.Occurrence{Weight: 1}, &occurrence.Target{Event: w.event})
		leader.counter.Add(n+1, 0, &e, claim)
	}
	if s := leader.streams[follower]; s.changes[0].Addition.Entry.Newest.Event == nil || s.changes[1].Addition.Entry.Newest.Event != nil {
		t.Errorf("changes %+v", s.changes)
	}
}

// Together they keep the labels of both beside their Events.
func TestEntriesAreNotJoinedIfThatTakesMoreMemory(t *testing.T) {
	of := func(labels map[string]string) *Entry {
		event := sinktest.Event(false)
		event.Labels = labels
		e, _ := NewEntry(&occurrence.Occurrence{Event: event, Weight: 1}, &occurrence.Target{Event: event})
		e.measure()
		return &e
	}
	if !of(nil).admits(of(nil)) {
		t.Error("they are not joined without labels")
	}
	long := strings.Repeat("x", 2048)
	if of(map[string]string{"a": long}).admits(of(map[string]string{"b": long})) {
		t.Error("they are joined with long labels")
	}
}
