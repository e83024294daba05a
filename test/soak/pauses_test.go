package soak

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/faultproxy"
	"github.com/eventd/eventd/test/figures"
)

var pauseFigures = figures.NewTable("Two sinks that pause at random, each behind a proxy of its own, write the same series at once",
	"series", "seeds", "occurrences", "requests", "struck", "conflicts", "pauses", "lost", "counted twice", "duplicate Events", "uncertain")

// longestPause of a sink, and the longest time between two.
const longestPause = 200 * time.Millisecond

// Two sinks write the same Events at the same time, while each is paused at any point,
// also between its read and its write: the stored count is the exact sum.
func TestCountIsTheSumOfTwoWritersThatPause(t *testing.T) {
	shapes := []shape{oneSeries, fewSeries}
	kinds := make([]kind, len(shapes))
	for i, s := range shapes {
		kinds[i] = kind{s.name, func(t *testing.T, seed uint64) outcome { return pausing(t, s, seed) }}
	}
	for i, out := range makeTrials(t, kinds) {
		if out.trials == 0 {
			continue // -run has left it out
		}
		wantStruck(t, kinds[i].name, out)
		if out.requests >= 200 && out.conflicted == 0 {
			t.Errorf("%s: two writers of the same Events never met in %d requests", kinds[i].name, out.requests)
		}
		pauseFigures.Add(shapes[i].name, seedRange(), out.recorded, out.requests, out.struck, out.conflicted, out.pauses,
			out.Lost, out.Twice, out.Duplicates, out.uncertain)
	}
}

func pausing(t *testing.T, s shape, seed uint64) outcome {
	proxies := []*faultproxy.Proxy{newProxy(t, 2*seed), newProxy(t, 2*seed+1)}
	ends := make([]func() int, len(proxies))
	trial := newTrial(t, seed, proxies...)
	for i, p := range proxies {
		p.SetRules(slowToo(0.2, losses)...)
		ends[i] = pauses(t, p, rand.New(rand.NewPCG(seed, uint64(1+i))))
	}
	trial.load(t, s)
	paused := 0
	for _, end := range ends {
		paused += end()
	}
	out := trial.finish(t)
	out.pauses = paused
	return out
}

// pauses freezes a proxy again and again until end is called, which returns how often.
func pauses(t *testing.T, p *faultproxy.Proxy, rng *rand.Rand) (end func() int) {
	ctx, cancel := context.WithCancel(t.Context())
	count := make(chan int, 1)
	go func() {
		n := 0
		for pass(ctx, rng, longestPause) {
			p.Freeze()
			n++
			pass(ctx, rng, longestPause)
			if err := p.Resume(); err != nil {
				t.Error(err)
			}
		}
		count <- n
	}()
	return func() int {
		cancel()
		return <-count
	}
}

// pass lets some time pass, and reports whether the context allowed it.
func pass(ctx context.Context, rng *rand.Rand, most time.Duration) bool {
	return await.Sleep(ctx, time.Duration(rng.Int64N(int64(most)))) == nil
}
