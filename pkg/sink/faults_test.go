package sink

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/eventd/eventd/internal/occurrence"
	"github.com/eventd/eventd/test/faultproxy"
	"github.com/eventd/eventd/test/testenv"
)

var (
	faultSeed  = flag.Uint64("faultseed", 1, "the first seed of the runs with faults")
	faultSeeds = flag.Int("faultseeds", 1, "how many seeds each of them runs with")
)

// faults is what goes wrong with a part of all writes.
type faults struct {
	name  string
	part  float64
	kinds []faultproxy.Fault
}

// refusals are answers that take the place of a write, and losses the fates of
// answers to writes that took effect.
var (
	refusals = []faultproxy.Fault{
		faultproxy.BeforeWrite(faultproxy.Status(500)),
		faultproxy.BeforeWrite(faultproxy.Status(429)),
		faultproxy.BeforeWrite(faultproxy.Status(503)),
		faultproxy.BeforeWrite(faultproxy.Status(504)),
		faultproxy.BeforeWrite(faultproxy.Status(503).RetryAfter(1).PlainText()),
		faultproxy.BeforeWrite(faultproxy.ResetStream),
	}
	losses = []faultproxy.Fault{
		faultproxy.AfterWrite(faultproxy.ResetStream),
		faultproxy.AfterWrite(faultproxy.ResetConnection),
		faultproxy.AfterWrite(faultproxy.Status(500)),
		faultproxy.AfterWrite(faultproxy.Status(504)),
		faultproxy.AfterWrite(faultproxy.Status(503).RetryAfter(1)),
		faultproxy.AfterWrite(faultproxy.Hang),
	}
)

func someFaults() []faults {
	out := []faults{{"answers are lost", 0.1, losses}, {"everything at once", 0.2, append(append([]faultproxy.Fault(nil), refusals...), losses...)}}
	for _, f := range refusals[:4] {
		out = append(out, faults{f.String(), 0.1, []faultproxy.Fault{f}})
	}
	return out
}

// Against a real apiserver, whatever goes wrong on the way: nothing is lost,
// nothing is counted twice, and there is one Event for each series.
func TestNothingIsLostOrCountedTwiceUnderFaults(t *testing.T) {
	for _, f := range someFaults() {
		for shape, series := range map[string]int{"one series": 1, "a mix": 20, "distinct series": 200} {
			for seed := *faultSeed; seed < *faultSeed+uint64(*faultSeeds); seed++ {
				t.Run(fmt.Sprintf("%s/%s/seed %d", f.name, shape, seed), func(t *testing.T) {
					t.Parallel()
					underFaults(t, f, series, seed)
				})
			}
		}
	}
}

func underFaults(t *testing.T, f faults, series int, seed uint64) {
	const occurrences = 200
	shared := testenv.Shared(t)
	namespace := shared.Namespace(t)
	proxy := faultproxy.New(t, shared.Config(), seed)
	proxy.SetRules(faultproxy.Spread(f.part, f.kinds...)...)
	o := unlimited()
	o.RequestTimeout = 500 * time.Millisecond
	o.RetryMaxDelay = 200 * time.Millisecond
	rng := rand.New(rand.NewPCG(seed, 0))
	var benches []*bench
	for range 2 { // that do not know of each other
		benches = append(benches, newBench(t, namespace, clientFor(t, proxy.Config()), o))
	}
	for i := range occurrences {
		b := benches[rng.IntN(len(benches))]
		b.recordLater(i%series, time.Duration(rng.IntN(3))*10*time.Millisecond)
		if rng.IntN(10) == 0 {
			b.Flush(t.Context()) // so that there are more writes
		}
	}
	for _, b := range benches {
		totals := b.close()
		if totals.Written() != totals.Recorded || totals.Outcomes[occurrence.Uncertain] != 0 {
			t.Errorf("seed %d: recorded %d, settled as %v, dropped %v", seed, totals.Recorded, totals.Outcomes, totals.Dropped)
		}
	}
	wantStored(t, namespace, series, occurrences)
}

// An apiserver that is away for a while, and comes back without the Events, costs
// nothing that was still owed.
func TestApiserverThatIsAwayCostsNothing(t *testing.T) {
	shared := testenv.Shared(t)
	namespace := shared.Namespace(t)
	proxy := faultproxy.New(t, shared.Config(), 1)
	o := unlimited()
	o.RetryMaxDelay = 200 * time.Millisecond
	b := newBench(t, namespace, clientFor(t, proxy.Config()), o)
	const series, rounds = 50, 20
	for i := range series {
		b.record(i)
	}
	if left := b.Flush(t.Context()); left.Series != 0 {
		t.Fatal(left)
	}
	proxy.Pause()
	for i := range series * rounds {
		b.record(i % series)
	}
	if p := b.Pending(); p.Series != series || p.Occurrences != series*rounds {
		t.Errorf("pending %+v", p)
	}
	if err := proxy.Resume(); err != nil {
		t.Fatal(err)
	}
	totals := b.close()
	if totals.Written() != totals.Recorded {
		t.Errorf("recorded %d, settled as %v", totals.Recorded, totals.Outcomes)
	}
	wantStored(t, namespace, series, series*(rounds+1))
}
