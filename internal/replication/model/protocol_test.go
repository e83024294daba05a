package model

import (
	"runtime"
	"testing"
	"time"
)

// clients returns occurrences of clients that count: each has a client and its total.
func clients(of ...[2]uint8) (out []occurrence) {
	for _, c := range of {
		out = append(out, occurrence{client: c[0], total: c[1]})
	}
	return out
}

var (
	twoClients = clients([2]uint8{1, 1}, [2]uint8{2, 1})
	twoTotals  = clients([2]uint8{1, 1}, [2]uint8{1, 2})
	// afterTwoTerms: F has followed L and has handed over to G, and L leads again.
	afterTwoTerms = "post, connect L F, batch L F, deliver L F, elect G, disconnect L F, hand F L, elect L"
)

// worlds are those in which the whole protocol is checked. Short ones are searched with -short too.
var worlds = []struct {
	name  string
	short bool
	bounds
}{
	{"a crash", true, bounds{processes: 2, alive: 2, occurrences: anonymous(2), left: budget{crashes: 1, merges: 1}}},
	{"two crashes of three processes", true, bounds{processes: 3, alive: 3, occurrences: anonymous(1), left: budget{crashes: 2}}},
	{"a change of leadership", true, bounds{processes: 2, alive: 2, occurrences: anonymous(2), left: budget{moves: 1, merges: 1}}},
	{"a broken stream", true, bounds{processes: 2, alive: 2, occurrences: anonymous(2), left: budget{crashes: 1, merges: 1, disconnects: 1}}},
	{"a client that waits for its write", true, bounds{processes: 2, alive: 2, occurrences: []occurrence{{awaited: true}, {}}, left: budget{crashes: 1, moves: 1}}},
	{"a full list of contributors", true, bounds{processes: 2, alive: 2, occurrences: anonymous(1), left: budget{crashes: 1, moves: 1, lostAnswers: 1, others: 1}}},
	{"a full list of clients", true, bounds{processes: 2, alive: 2, occurrences: twoClients, left: budget{crashes: 1, names: 1, retries: 1}}},
	{"a client with two totals", true, bounds{processes: 2, alive: 2, occurrences: twoTotals, left: budget{crashes: 1, moves: 1}}},
	{"a refused occurrence", true, bounds{processes: 2, alive: 2, occurrences: anonymous(2), left: budget{crashes: 1, lostAnswers: 1, refusals: 1}}},
	{"a refused client that retries", true, bounds{processes: 2, alive: 2, occurrences: twoTotals, left: budget{crashes: 1, moves: 1, retries: 1, refusals: 1}, atOnce: true}},
	{"two series", true, bounds{processes: 2, alive: 2, occurrences: []occurrence{{}, {series: 1}}, left: budget{crashes: 1, moves: 1}, atOnce: true}},
	{"leadership returns and leaves again", true, bounds{processes: 3, alive: 3, occurrences: anonymous(2), left: budget{moves: 3, merges: 1}, atOnce: true, after: afterTwoTerms}},

	{"all faults, one occurrence", false, bounds{processes: 2, alive: 2, occurrences: anonymous(1), left: budget{crashes: 1, moves: 1, lostRequests: 1, lostAnswers: 1, disconnects: 1, others: 1, expiries: 1}}},
	{"a crash, a change of leadership and a lost answer", false, bounds{processes: 2, alive: 2, occurrences: anonymous(2), left: budget{crashes: 1, moves: 1, lostAnswers: 1, merges: 1}}},
	{"a late request", false, bounds{processes: 2, alive: 2, occurrences: anonymous(2), left: budget{moves: 1, lostRequests: 1, merges: 1}}},
	{"a crash, a change of leadership and a full list", false, bounds{processes: 2, alive: 2, occurrences: anonymous(2), left: budget{crashes: 1, moves: 1, others: 1}}},
	{"two changes of leadership and an Event that expires", false, bounds{processes: 2, alive: 2, occurrences: anonymous(2), left: budget{moves: 2, expiries: 1}, atOnce: true}},
	{"a crash and a change of leadership among three", false, bounds{processes: 3, alive: 3, occurrences: anonymous(1), left: budget{crashes: 2, moves: 1}}},
	{"a crash among three, two occurrences", false, bounds{processes: 3, alive: 3, occurrences: anonymous(2), left: budget{crashes: 1}}},
	{"a client with two totals among three", false, bounds{processes: 3, alive: 3, occurrences: twoTotals, left: budget{crashes: 1}}},
	{"a client that retries among three", false, bounds{processes: 3, alive: 3, occurrences: clients([2]uint8{1, 1}), left: budget{crashes: 1, names: 1, retries: 1}}},
	{"a process that starts later", false, bounds{processes: 3, alive: 2, occurrences: anonymous(2), left: budget{crashes: 2, starts: 1}}},
	{"three occurrences, two merges", false, bounds{processes: 2, alive: 2, occurrences: anonymous(3), left: budget{crashes: 1, moves: 1, merges: 2}, atOnce: true}},
	{"four occurrences in two series", false, bounds{processes: 2, alive: 2, occurrences: []occurrence{{}, {series: 1}, {}, {series: 1}}, left: budget{crashes: 1, merges: 1}, atOnce: true}},
	{"leadership returns, and a crash", false, bounds{processes: 3, alive: 3, occurrences: anonymous(2), left: budget{moves: 2, crashes: 1, merges: 1}, atOnce: true, after: afterTwoTerms}},
	{"a client that retries after a change of leadership", false, bounds{processes: 3, alive: 3, occurrences: clients([2]uint8{1, 1}), left: budget{moves: 1, names: 1, retries: 1}, after: "post, connect L F, batch L F, deliver L F, elect G"}},
	{"two crashes and a lost answer among three", false, bounds{processes: 3, alive: 3, occurrences: anonymous(1), left: budget{crashes: 2, lostAnswers: 1}}},
	{"an Event that expires among three", false, bounds{processes: 3, alive: 3, occurrences: anonymous(1), left: budget{crashes: 1, moves: 1, expiries: 1}, atOnce: true}},
	{"a broken stream among three", false, bounds{processes: 3, alive: 3, occurrences: anonymous(2), left: budget{crashes: 1, disconnects: 1}, atOnce: true}},
	{"a full list of contributors among three", false, bounds{processes: 3, alive: 3, occurrences: anonymous(1), left: budget{crashes: 1, moves: 1, others: 1}, atOnce: true}},
}

// maxStates bounds the memory of a search, to about 1 GB.
const maxStates = 2_000_000

func TestProtocolHoldsInAllHistories(t *testing.T) {
	states, steps, begun := 0, 0, time.Now()
	for _, w := range worlds {
		if !w.short && testing.Short() {
			continue
		}
		r := search(newWorld(protocol(), w.bounds), "", maxStates)
		t.Logf("%-52s %s", w.name, r)
		if r.wrong != "" {
			t.Errorf("%s:\n%s", w.name, r.trace())
		}
		states, steps = states+r.states, steps+r.steps
		runtime.GC()
	}
	t.Logf("%d states and %d steps in %v", states, steps, time.Since(begun).Round(time.Second))
}
