package counter

import (
	"fmt"
	"maps"
	"math"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/occurrence"
)

// succession is a world in which a leader adopts what a former leader has pending.
type succession struct {
	*world
	former, leader *replica
}

// do makes steps of a writer.
func (s *succession) do(by *writer, steps ...step) {
	s.ours = by
	for _, do := range steps {
		do(s.world)
	}
}

// adopt has the leader hold and adopt what the former one has pending, and returns the writer of it.
func (s *succession) adopt() *writer {
	s.former.connect(s.leader)
	s.former.batch(s.leader)
	s.former.deliver(s.leader, true)
	s.leader.adopt(s.leader.held[s.former.instance], func([]Settled) {})
	return s.leader.adopted[s.former.instance]
}

// writePast has more others write than the list of sinks takes.
func writePast(w *world) { writePastBy(nil)(w) }

// writePastBy is writePast by writers whose names begin so.
func writePastBy(prefix []byte) step {
	return func(w *world) {
		for range maxSinks {
			other := newWriter(w.t, w.digest)
			copy(other.instance[:], prefix)
			other.counter.instance = other.instance
			before := w.ours
			w.ours = other
			adds(w)
			writes(w)
			w.ours = before
		}
	}
}

// drains makes all requests of one writer. Some may settle without one.
func drains(w *world) {
	for w.start(w.ours) {
		for ; len(w.flights) > 0; w.flights = w.flights[1:] {
			w.land(w.flights[0])
		}
	}
}

// rewrites changes the annotation of all Events, as by an older release or a squatter.
func rewrites(change func(string) string) step {
	return changes(func(e *corev1.Event) { e.Annotations[Annotation] = change(e.Annotations[Annotation]) })
}

func withoutPushedOut(s string) string {
	before, _, _ := strings.Cut(s, ";"+pushedOutPart+"=")
	return before
}

func asCreateOnly(w *world) {
	w.add(occurrence.Occurrence{Weight: 5, Client: "a", Total: 5, User: "u", CreateOnly: true}, w.event)
}

func TestAdoptedOccurrencesAreCountedOnce(t *testing.T) {
	type ends = map[occurrence.Outcome]int64
	older, newer := writePastBy([]byte("00")), writePastBy([]byte("vv"))
	for _, test := range []struct {
		name   string
		before []step // of the former leader, until it is adopted
		after  []step // of the former leader, after that
		may    *Access
		ends   ends  // of what was adopted
		total  int64 // counted
	}{
		{"which nobody has written", []step{adds, addsMany(2)}, nil, nil, ends{occurrence.Created: 1, occurrence.Merged: 2}, 3},
		{"which a lost write has counted", []step{adds, addsMany(2), losesAnswer}, nil, nil, ends{occurrence.Found: 3}, 3},
		{"which a late write counts", []step{adds, writes, adds, isLate}, []step{settles}, nil, ends{occurrence.Found: 1}, 2},
		{"which the contributor writes, and more", []step{adds}, []step{adds, writes}, nil, ends{occurrence.Found: 1}, 2},
		{"of which the first was counted before", []step{adds, losesAnswer, addsMany(2)}, nil, nil, ends{occurrence.Found: 1, occurrence.Merged: 2}, 3},
		{"though the list of sinks is full", []step{writePast, adds}, nil, nil, ends{occurrence.Merged: 1}, maxSinks + 1},
		{"unless the contributor was pushed out", []step{adds, losesAnswer, writePast}, nil, nil, ends{occurrence.Uncertain: 1}, maxSinks + 1},
		{"unless an older release may have pushed it out", []step{writePast, rewrites(withoutPushedOut), adds}, nil, nil, ends{occurrence.Uncertain: 1}, maxSinks},
		{"though more older ones were pushed out than are remembered", []step{older, older, older, older, adds}, nil, nil, ends{occurrence.Merged: 1}, 4*maxSinks + 1},
		{"unless more newer ones were pushed out", []step{newer, newer, newer, adds}, nil, nil, ends{occurrence.Uncertain: 1}, 3 * maxSinks},
		{"nor if older ones were pushed out since", []step{adds, losesAnswer, older, older, older, older}, nil, nil, ends{occurrence.Uncertain: 1}, 4*maxSinks + 1},
		{"though somebody forges a share that is too high", []step{adds, writes, adds}, []step{rewrites(func(string) string {
			return "v1;s=%:" + fmt.Sprint(uint64(math.MaxUint64))
		})}, nil, ends{occurrence.Created: 1}, 2},
		{"unless their Event may not be changed", []step{adds}, nil, &createOnly, ends{occurrence.Uncertain: 1}, 0},
		{"unless their Event cannot be found", []step{adds}, nil, &unmarked, ends{occurrence.Uncertain: 1}, 0},
		{"unless all names of their Event are taken", []step{foreign(identity.MaxSuffix + 1), adds}, nil, nil, ends{occurrence.Uncertain: 1}, identity.MaxSuffix + 1},
		{"but for those of a create-only user", []step{adds, writes, asCreateOnly}, nil, nil, ends{occurrence.Merged: 1, occurrence.Dropped: 4}, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := &succession{world: newWorld(t, 1, 1, false)}
			s.faults = 0
			s.former, s.leader = newReplica(s.world), newReplica(s.world)
			s.do(s.former.writer, test.before...)
			adopted := s.adopt()
			s.do(s.former.writer, test.after...)
			for _, e := range s.server.Objects { // a share of the former leader
				e.Annotations[Annotation] = strings.ReplaceAll(e.Annotations[Annotation], "%", s.former.instance.String())
			}
			if test.may != nil {
				s.world.may = *test.may
			}
			if s.do(adopted, drains); adopted.counter.Key == s.former.counter.Key || !adopted.counter.adopted {
				t.Error("the counter is not another one")
			}
			maps.DeleteFunc(adopted.settled, func(_ occurrence.Outcome, n int64) bool { return n == 0 })
			if counted := s.server.Counted(); !maps.Equal(adopted.settled, test.ends) || counted != test.total {
				t.Errorf("ends %v, %d counted, want %v, %d", adopted.settled, counted, test.ends, test.total)
			}
		})
	}
}

func TestAdoptedSeriesHaveKeysOfTheirOwn(t *testing.T) {
	keys := map[occurrence.Key]bool{}
	for i := range 8 {
		keys[adoptedKey(numbered(i&1), occurrence.Key{A: uint64(i & 2), B: uint64(i & 4)})] = true
	}
	if len(keys) != 8 {
		t.Errorf("%d keys of 8 series", len(keys))
	}
}

// Who is not in the list of sinks, though it is full, has written nothing if nobody has pushed it
// out. So a leader that lives finds what others have written in its name, and writes the rest.
func TestLeaderFindsWhatOthersHaveWrittenInItsName(t *testing.T) {
	s := &succession{world: newWorld(t, 1, 1, false)}
	s.former, s.leader = newReplica(s.world), newReplica(s.world)
	s.do(s.former.writer, adds, adds)
	adopted := s.adopt()
	s.do(adopted, writes)
	s.do(s.former.writer, adds, writes)
	if got := s.former.settled; got[occurrence.Found] != 2 || got[occurrence.Merged] != 1 || s.server.Counted() != 3 {
		t.Errorf("settled %v, counted %d", got, s.server.Counted())
	}
}

// An entry was evicted between others. It may be the one with which another process ended a write.
func TestShareOfAnEvictedEntryIsRecognized(t *testing.T) {
	s := &succession{world: newWorld(t, 1, 1, false)}
	s.former, s.leader = newReplica(s.world), newReplica(s.world)
	s.do(s.former.writer, adds, addsMany(2))
	adopted := s.adopt()
	s.former.counter.Newest().Owner = s
	s.do(adopted, writes)
	s.former.take(s.former.counter.Evict(s))
	s.do(s.former.writer, adds, writes)
	if got := s.former.settled; got[occurrence.Found] != 1 || got[occurrence.Merged] != 1 || s.server.Counted() != 4 || len(s.server.Objects) != 1 {
		t.Errorf("settled %v, counted %d on %d Events", got, s.server.Counted(), len(s.server.Objects))
	}
}

// What this process has planned does not matter for what others have counted. Of a total, at least
// 1 is counted.
func TestFoundEntryHasNoForbiddenPart(t *testing.T) {
	for name, plans := range map[string][]step{"not planned": {sends}, "planned": {sends, sends, begins}} {
		s := &succession{world: newWorld(t, 1, 1, false)}
		s.former, s.leader = newReplica(s.world), newReplica(s.world)
		s.do(s.former.writer, adds, writes, asCreateOnly)
		adopted := s.adopt()
		learn, total := adopted.onSettled, uint64(0)
		adopted.onSettled = func(out []Settled) {
			learn(out)
			for i := range out {
				out[i].Totals(func(_ Contributor, n uint64) { total = n })
			}
		}
		s.do(adopted, plans...)
		flights := s.flights
		s.flights = nil
		s.do(s.former.writer, writes)
		if s.flights = flights; len(flights) > 0 {
			s.finish(false) // a conflict
		}
		if s.do(adopted, drains); adopted.settled[occurrence.Found] != 5 || adopted.settled[occurrence.Dropped] != 0 || total != 1 {
			t.Errorf("%s: settled %v, a total of %d", name, adopted.settled, total)
		}
	}
}

// A client that was not answered reports again to the next leader, and is forgotten by the Event
// before that writes what it had adopted.
func TestForgottenClientIsCountedOnce(t *testing.T) {
	s := &succession{world: newWorld(t, 1, 1, false)}
	s.former, s.leader = newReplica(s.world), newReplica(s.world)
	s.do(s.former.writer, reports("a", 5))
	adopted := s.adopt()
	s.do(s.leader.writer, reports("a", 5), writes)
	for i := range maxClients {
		s.do(s.leader.writer, reports(fmt.Sprint("client-", i), 1), writes)
	}
	s.do(adopted, drains)
	if adopted.settled[occurrence.Replayed] != 5 || s.server.Counted() != 5+maxClients {
		t.Errorf("settled %v, counted %d", adopted.settled, s.server.Counted())
	}
	// The Event expires. Nothing of the client is in the next one.
	s.do(s.leader.writer, expires, reports("b", 1), writes, reports("a", 5), writes)
	if got := s.server.Counted(); got != 5+maxClients+6 {
		t.Errorf("counted %d", got)
	}
}
