package sink

import (
	"testing"
	"testing/synctest"

	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/apiclient"
)

// Each kind of occurrence needs one request for each repeat, however it is recalled.
func TestRepeatOfARememberedSeriesIsOneRequest(t *testing.T) {
	for name, test := range map[string]struct {
		kinds []change
		of    func(round int64) change
	}{
		"classic":                {[]change{normal}, nil},
		"new-style":              {[]change{newStyle}, nil},
		"of a client":            {[]change{normal, by("jane")}, func(round int64) change { return byClient("web-0.17", round) }},
		"of many clients":        {[]change{normal, by("jane")}, func(round int64) change { return byClient(string(rune('a'+round)), 1) }},
		"of who may only create": {[]change{by("jane"), createOnly}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			const series, rounds = 200, 20
			f := &fake{}
			bubble(t, f, nil, func(t *testing.T, b *bench) {
				for round := range int64(rounds) {
					changes := test.kinds
					if test.of != nil {
						changes = append(changes[:len(changes):len(changes)], test.of(round+1))
					}
					b.recordEach(series, changes...)
					b.flush()
				}
				b.wantEnds(ends{written: series * rounds})
				if n := f.sent(); n != series*rounds || f.verbs[apiclient.VerbCreate] != series {
					t.Errorf("%d requests for %d occurrences: %v", n, series*rounds, f.verbs)
				}
				if counted := f.server.Counted(); counted != series*rounds {
					t.Errorf("%d are counted, want %d", counted, series*rounds)
				}
			})
		})
	}
}

func createOnly(o *occurrence.Occurrence) { o.CreateOnly = true }

// A process that has forgotten series, or has just started, reads before it creates where Events
// exist: two requests each in place of three. That is so in each namespace by itself.
func TestReadComesFirstWhereEventsExist(t *testing.T) {
	const series = 100
	f := &fake{}
	bubble(t, f, nil, func(t *testing.T, b *bench) {
		b.recordEach(series)
		b.flush()
		next := start(t.Context(), t, f, unlimited())
		defer next.closeWithin(0)
		requests := func(record func()) int {
			before := f.sent()
			record()
			next.flush()
			return f.sent() - before
		}
		known := requests(func() {
			for i := range series {
				next.record(i)
				synctest.Wait()
			}
		})
		if guesses := known - 2*series; guesses < 1 || guesses > 10 {
			t.Errorf("%d requests for %d Events that exist", known, series)
		}
		if again := requests(func() { next.recordEach(series) }); again != series {
			t.Errorf("%d requests for %d series that are remembered, where others are read first", again, series)
		}
		if n := requests(func() { next.recordEach(series, inNamespace("another")) }); n != series {
			t.Errorf("%d requests for %d new Events of another namespace", n, series)
		}
		fresh := requests(func() {
			for i := range series {
				next.record(series + i)
				synctest.Wait()
			}
		})
		if guesses := fresh - series; guesses < 1 || guesses > 10 {
			t.Errorf("%d requests for %d new Events", fresh, series)
		}
		if again := requests(func() { next.recordEach(2 * series) }); again != 2*series {
			t.Errorf("%d requests for %d series that are remembered", again, 2*series)
		}
		if counted := f.server.Counted(); counted != 7*series {
			t.Errorf("%d are counted, want %d", counted, 7*series)
		}
	})
}
