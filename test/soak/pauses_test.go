package soak

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/faultproxy"
)

// longestPause of a sink, and the longest time between two.
const longestPause = 200 * time.Millisecond

// Two sinks write the same Events at the same time, while each is paused at any point,
// also between its read and its write: the stored count is the exact sum.
func TestCountIsTheSumOfTwoWritersThatPause(t *testing.T) {
	var kinds []kind
	for _, s := range []shape{oneSeries, fewSeries} {
		kinds = append(kinds, kind{s.name, func(t *testing.T, seed uint64) outcome { return pausing(t, s, seed) }})
	}
	for i, sums := range makeTrials(t, kinds) {
		if sums.requests >= 200 && sums.conflicted == 0 {
			t.Errorf("%s: two writers of the same Events never met in %d requests", kinds[i].name, sums.requests)
		}
	}
}

func pausing(t *testing.T, s shape, seed uint64) outcome {
	proxies := []*faultproxy.Proxy{newProxy(t, 2*seed), newProxy(t, 2*seed+1)}
	var ends []func()
	trial := newTrial(t, seed, proxies...)
	for i, p := range proxies {
		p.SetRules(slowToo(0.2, losses)...)
		ends = append(ends, pauses(t, p, rand.New(rand.NewPCG(seed, uint64(1+i)))))
	}
	trial.load(t, s)
	for _, end := range ends {
		end()
	}
	return trial.finish(t)
}

// pauses freezes a proxy again and again until end is called.
func pauses(t *testing.T, p *faultproxy.Proxy, rng *rand.Rand) (end func()) {
	pass := func(ctx context.Context) { _ = await.Sleep(ctx, time.Duration(rng.Int64N(int64(longestPause)))) }
	return await.Every(time.Millisecond, func(ctx context.Context) {
		pass(ctx)
		p.Freeze()
		pass(ctx)
		if err := p.Resume(); err != nil {
			t.Error(err)
		}
	})
}
