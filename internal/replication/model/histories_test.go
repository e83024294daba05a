package model

import (
	"cmp"
	"testing"
)

// histories break simpler versions of the protocol. The first eight are those with which it was
// designed. The count at the end is that of all Events.
var histories = []struct {
	name         string
	lacks        string // the rule that the simpler version does not have
	instead      string // the alternative that it has in its place
	occurrences  []occurrence
	history      string
	stored, real uint8 // the count of the simpler version, and how many there are
}{
	{
		name: "entry merged after it was sent", lacks: "Cut", occurrences: anonymous(2),
		history: "post, connect L F, batch L F, deliver L F, post, merge L s0 e0, " + handToF + writeByF,
		stored:  3, real: 2,
	},
	{
		name: "share beyond what the writer itself has carried", lacks: "Sent", occurrences: anonymous(3),
		history: "elect F, post, send F F s0, arrive F F s0, answer F F s0, " +
			"elect L, post, send L L s0, arrive L L s0, answer L L s0, " +
			"post, connect L F, batch L F, deliver L F, " + handToF + writeByF + "answer F L s0, read F L s0, " + writeByF,
		stored: 4, real: 3,
	},
	{
		name: "occurrence that was not sent, below one that was", lacks: "SendAll", occurrences: []occurrence{{awaited: true}, {}},
		history: "post, send L L s0, post, connect L F, batch L F, deliver L F, " + handToF + writeByF,
		stored:  1, real: 2,
	},
	{
		name: "contributor pushed out of the full list, settlement lost", lacks: "PushedOut", occurrences: anonymous(1),
		history: "post, connect L F, batch L F, deliver L F, send L L s0, arrive L L s0, crash L, others s0, " + handToF,
		stored:  10, real: 9,
	},
	{
		name: "client that retries after its name was pushed out", lacks: "Names", occurrences: []occurrence{{client: 1, total: 1}},
		history: "post, connect L F, batch L F, deliver L F, crash L, " + handToF + writeByF + "answer F L s0, names s0, retry o0",
		stored:  101, real: 100,
	},
	{
		name: "only G had confirmed, F is elected", lacks: "Hand", occurrences: anonymous(1),
		history: "connect L G, post, batch L G, deliver L G, ack L G, crash L, disconnect L G, elect F",
		stored:  0, real: 1,
	},
	{
		name: "follower misses a batch and not the next one", lacks: "Ordered", occurrences: anonymous(2),
		history: "connect L F, post, batch L F, lose batch L F, post, batch L F, deliver L F, " + handToF + writeByF,
		stored:  1, real: 2,
	},
	{
		name: "new total written before the orphan, views copied", lacks: "Totals", occurrences: []occurrence{{client: 1, total: 1}, {client: 1, total: 2}},
		history: "post, connect L F, batch L F, deliver L F, ack L F, crash L, disconnect L F, elect F, " +
			"post, send F F s0, arrive F F s0, answer F F s0, hand F L",
		stored: 1, real: 2,
	},
	{
		name: "follower that holds more and had handed over what it held", lacks: "Seal", instead: "HoldsMore", occurrences: anonymous(2),
		history: "post, connect L F, batch L F, deliver L F, ack L F, elect G, disconnect L F, hand F L, " +
			"elect L, connect L F, post, batch L F, deliver L F, ack L F, merge L s0 e0, " +
			"elect G, hand G L, send G L s0, arrive G L s0",
		stored: 3, real: 2,
	},
	{
		name: "contributor that has written nothing, and a full list", lacks: "PushedOut", instead: "MissingUncertain", occurrences: anonymous(2),
		history: "post, send L L s0, arrive L L s0, crash L, others s0, elect F, " +
			"post, send F F s0, arrive F F s0, answer F F s0, read F F s0",
		stored: 9, real: 10,
	},
}

const (
	handToF  = "elect F, disconnect L F, hand F L, "
	writeByF = "send F L s0, arrive F L s0, "
)

func anonymous(n int) []occurrence { return make([]occurrence, n) }

func TestHistoriesThatBreakSimplerProtocols(t *testing.T) {
	for _, h := range histories {
		t.Run(h.name, func(t *testing.T) {
			simpler := without(h.lacks)
			if h.instead != "" {
				simpler.set(h.instead, true)
			}
			if got, wrong := replay(t, simpler, h.occurrences, h.history, true); got != h.stored {
				t.Errorf("the simpler protocol stores %d (%s), want %d", got, wrong, h.stored)
			}
			if got, wrong := replay(t, protocol(), h.occurrences, h.history, false); got != h.real || wrong != "" {
				t.Errorf("the protocol stores %d (%s), want %d", got, wrong, h.real)
			}
		})
	}
}

// replay replays a history, and then whatever has to happen. It returns the count, and the first
// property that is broken. Unless all of it must be possible, it leaves out what a rule prevents.
func replay(t *testing.T, r rules, o []occurrence, history string, all bool) (count uint8, broken string) {
	t.Helper()
	many := budget{crashes: 9, lostRequests: 9, lostAnswers: 9, disconnects: 9, moves: 9, expiries: 9, others: 9, names: 9, retries: 9, starts: 9, merges: 9}
	w := newWorld(r, bounds{processes: 3, alive: 3, occurrences: o, left: many})
	s := w.first()
	do := func(a action) {
		var wrong string
		s, wrong = w.apply(&s, a)
		broken = cmp.Or(broken, wrong)
	}
	for _, a := range parse(history) {
		if kinds[a.kind].can(w, &s, a) {
			do(a)
		} else if all {
			t.Fatalf("%s is not possible", a)
		}
	}
	for a, ok := w.needed(&s); ok; a, ok = w.needed(&s) {
		do(a)
	}
	w.wrong = ""
	w.checkEnd(&s)
	broken = cmp.Or(broken, w.wrong)
	for i := range s.events {
		count += s.events[i].number
	}
	return count, broken
}

// needed returns the first action that has to happen.
func (w *world) needed(s *state) (action, bool) {
	actions, _ := w.next(s, nil)
	for _, a := range actions {
		if kinds[a.kind].needed(w, s, a) {
			return a, true
		}
	}
	return action{}, false
}
