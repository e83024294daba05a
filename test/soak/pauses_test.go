package soak

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/faultproxy"
	"github.com/eventd/eventd/test/link"
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
	var proxies []*faultproxy.Proxy
	var configs []*rest.Config
	var ends []func()
	for i := range uint64(2) {
		p := newProxy(t, 2*seed+i)
		p.SetRules(slowToo(0.2, losses)...)
		config := p.Config()
		l := link.New(t, strings.TrimPrefix(config.Host, "https://"))
		config.Host = "https://" + l.Address()
		ends = append(ends, pauses(l, rand.New(rand.NewPCG(seed, 1+i))))
		proxies, configs = append(proxies, p), append(configs, config)
	}
	trial := newTrial(t, seed, proxies, configs...)
	trial.load(t, s)
	for _, end := range ends {
		end()
	}
	return trial.finish(t)
}

// pauses cuts a link again and again until end is called.
func pauses(l *link.Link, rng *rand.Rand) (end func()) {
	pass := func(ctx context.Context) { _ = await.Sleep(ctx, time.Duration(rng.Int64N(int64(longestPause)))) }
	return await.Every(time.Millisecond, func(ctx context.Context) {
		pass(ctx)
		l.Cut()
		pass(ctx)
		l.Mend()
	})
}
