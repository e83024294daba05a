package model

import (
	"math/rand/v2"
	"testing"

	"github.com/eventd/eventd/test/seeds"
)

// TestProtocolHoldsInRandomHistories goes through worlds that are too large to search.
func TestProtocolHoldsInRandomHistories(t *testing.T) {
	histories, steps := 0, 0
	for seed := range seeds.Of(15_000) {
		histories++
		w := newWorld(protocol(), bounds{processes: 3, alive: 2 + uint8(seed%2), left: budget{
			crashes: 1, lostRequests: 1, lostAnswers: 2, disconnects: 2, moves: 4,
			expiries: 1, others: 1, names: 1, retries: 2, starts: 1, merges: 3, refusals: 1,
		}})
		switch seed % 3 {
		case 0:
			w.occurrences = []occurrence{{}, {series: 1}, {}, {series: 1, awaited: true}}
		case 1:
			w.occurrences = anonymous(4)
		case 2:
			w.occurrences = append(clients([2]uint8{1, 1}, [2]uint8{1, 2}, [2]uint8{2, 1}), occurrence{})
		}
		if seed%5 == 0 { // without what may be lost
			w.left.expiries, w.left.others, w.left.crashes = 0, 0, 2
		}
		r := w.walk(rand.New(rand.NewPCG(seed, 0)))
		if steps += len(r.history); r.wrong != "" {
			t.Fatalf("seed %d:\n%s", seed, r.trace())
		}
	}
	t.Logf("%d histories, %d steps", histories, steps)
}

// walk goes through one history to its end.
func (w *world) walk(rng *rand.Rand) (r result) {
	s := w.first()
	for {
		actions, needed := w.next(&s, nil)
		if w.wrong = ""; !needed {
			w.checkEnd(&s)
		}
		if r.wrong = w.wrong; r.wrong != "" || len(actions) == 0 {
			return r
		}
		a := actions[rng.IntN(len(actions))]
		r.history = append(r.history, a)
		if s, r.wrong = w.apply(&s, a); r.wrong != "" {
			return r
		}
	}
}
