package soak

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink"
	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/faultproxy"
	"github.com/eventd/eventd/test/link"
	"github.com/eventd/eventd/test/longrun"
	"github.com/eventd/eventd/test/testenv"
)

// occurrencesPerTrial are recorded by the two sinks of a trial together.
const occurrencesPerTrial = 120

// shape says which series the i-th occurrence is of.
type shape struct {
	name   string
	series func(i int) int
}

var (
	oneSeries = shape{"one series", func(int) int { return 0 }}
	aMix      = shape{"a mix", func(i int) int { // half of it on two hot ones
		if i%2 == 0 {
			return i / 2 % 2
		}
		return i
	}}
	distinctSeries = shape{"distinct series", func(i int) int { return i }}
	fewSeries      = shape{"few series", func(i int) int { return i % 4 }}
)

// trial is two independent sinks that count the same series, each through a proxy.
type trial struct {
	seed      uint64
	namespace string
	proxies   []*faultproxy.Proxy
	writers   []*writer
}

// trialOptions keep a trial short: a lost answer costs half a second, and few waits are
// longer. As by default, an answer counts as slow before its timeout. So the sinks of
// all trials reduce their load when the apiserver is overloaded.
func trialOptions() sink.Options {
	o := sink.DefaultOptions()
	o.QPS = math.Inf(1)
	o.SlowAnswer = 200 * time.Millisecond
	o.RequestTimeout = 500 * time.Millisecond
	o.RetryMaxDelay = 200 * time.Millisecond
	return o
}

// newTrial makes a trial whose sinks reach the proxies by configs.
func newTrial(t *testing.T, seed uint64, proxies []*faultproxy.Proxy, configs ...*rest.Config) *trial {
	trial := &trial{seed: seed, namespace: testenv.Shared(t).Namespace(t), proxies: proxies}
	for i := range 2 {
		trial.writers = append(trial.writers, newWriter(t, configs[i%len(configs)], trialOptions()))
	}
	return trial
}

// newProxy returns a proxy whose faults do not depend on the namespace, which differs
// in every run and is part of the hash in each Event's name.
func newProxy(t *testing.T, seed uint64) *faultproxy.Proxy {
	p := faultproxy.New(t, testenv.Shared(t).Config(), seed)
	p.SetKey(func(r faultproxy.Request) string {
		object, _, _ := strings.Cut(r.Name, ".") // of the Event
		return string(r.Verb) + " " + object
	})
	return p
}

// load records the occurrences of a trial. Every second series is written through
// the other API.
func (trial *trial) load(t *testing.T, shape shape) {
	rng := rand.New(rand.NewPCG(trial.seed, 0))
	for i := range occurrencesPerTrial {
		w := trial.writers[rng.IntN(len(trial.writers))]
		series := shape.series(i)
		api := occurrence.CoreV1
		if (uint64(series)+trial.seed)%2 == 1 {
			api = occurrence.EventsV1
		}
		w.record(trial.namespace, fmt.Sprint("pod-", series), api, time.Duration(rng.IntN(3))*10*time.Millisecond, nil)
		if rng.IntN(10) == 0 {
			w.Flush(t.Context()) // so that there are more writes
		}
	}
}

// finish drains the sinks, waits for the last late write, and compares what is stored
// with what was recorded.
func (trial *trial) finish(t *testing.T) outcome {
	var out outcome
	want := counts{}
	for _, w := range trial.writers {
		out.recorded += w.finish().Recorded
		for o, n := range w.recorded {
			want[o] += n
		}
	}
	ctx, cancel := bounded(t)
	defer cancel()
	for _, p := range trial.proxies {
		if err := p.Quiet(ctx); err != nil {
			t.Fatalf("writes are still in flight: %v", err)
		}
		r := p.Record()
		out.requests += len(r)
		out.struck += r.Count(func(e faultproxy.Entry) bool { return e.Fault != "" })
		out.conflicted += r.Count(func(e faultproxy.Entry) bool { return e.Status == http.StatusConflict })
	}
	wantStored(t, testenv.Shared(t), want)
	return out
}

// outcome is that of some trials.
type outcome struct {
	recorded                     int64
	requests, struck, conflicted int
}

// kind is a kind of trial.
type kind struct {
	name  string
	trial func(t *testing.T, seed uint64) outcome
}

// makeTrials runs a trial of every kind with every seed, several at once, and adds up
// what has happened in those of each kind.
func makeTrials(t *testing.T, kinds []kind) []outcome {
	var mu sync.Mutex
	sums := make([]outcome, len(kinds))
	t.Run("trials", func(t *testing.T) {
		for i, k := range kinds {
			for n := range *seeds {
				seed := *firstSeed + uint64(n)
				t.Run(fmt.Sprintf("%s, seed %d", k.name, seed), func(t *testing.T) {
					t.Parallel()
					out := k.trial(t, seed)
					mu.Lock()
					defer mu.Unlock()
					sums[i].add(out)
				})
			}
		}
	})
	for i, k := range kinds {
		if sums[i].requests >= 200 && sums[i].struck == 0 {
			t.Errorf("%s: none of %d requests was struck by a fault", k.name, sums[i].requests)
		}
		longrun.Report(t, "%s, from seed %d: %d occurrences, %d requests, of which %d were struck by a fault",
			k.name, *firstSeed, sums[i].recorded, sums[i].requests, sums[i].struck)
	}
	return sums
}

func (o *outcome) add(other outcome) {
	o.recorded += other.recorded
	o.requests += other.requests
	o.struck += other.struck
	o.conflicted += other.conflicted
}

// faults strike a share of all writes.
type faults struct {
	name  string
	rules []faultproxy.Rule
}

var (
	// refusals are answers instead of a write.
	refusals = []faultproxy.Fault{
		faultproxy.BeforeWrite(faultproxy.Status(500)),
		faultproxy.BeforeWrite(faultproxy.Status(429)),
		faultproxy.BeforeWrite(faultproxy.Status(503)),
		faultproxy.BeforeWrite(faultproxy.Status(504)),
		faultproxy.BeforeWrite(faultproxy.Status(503).RetryAfter(1).PlainText()),
		faultproxy.BeforeWrite(faultproxy.ResetStream),
	}
	// losses are lost answers to writes that took effect, or take effect later.
	losses = []faultproxy.Fault{
		faultproxy.AfterWrite(faultproxy.ResetStream),
		faultproxy.AfterWrite(faultproxy.ResetConnection),
		faultproxy.AfterWrite(faultproxy.Status(500)),
		faultproxy.AfterWrite(faultproxy.Status(504)),
		faultproxy.AfterWrite(faultproxy.Status(503).RetryAfter(1)),
		faultproxy.AfterWrite(faultproxy.Hang),
		faultproxy.LateWrite(faultproxy.Uniform(0, 300*time.Millisecond), faultproxy.Status(504)),
		faultproxy.LateWrite(faultproxy.Uniform(0, 300*time.Millisecond), faultproxy.ResetStream),
	}
	// slow is a write that may take longer than its client waits, before or after it
	// takes effect.
	slow = faultproxy.Slow(faultproxy.Exponential(50*time.Millisecond, 700*time.Millisecond), faultproxy.Exponential(50*time.Millisecond, 700*time.Millisecond))
)

func allFaults() []faults {
	var all []faults
	for _, f := range refusals[:4] {
		all = append(all, faults{"10 % " + f.String(), faultproxy.Spread(0.1, f)})
	}
	return append(all,
		faults{"10 % answers lost, 10 % slow", slowToo(0.1, losses)},
		faults{"20 % everything, 20 % slow", slowToo(0.2, slices.Concat(refusals, losses))})
}

// slowToo lets faults strike a share of the writes, and slows the same share of the
// others.
func slowToo(part float64, kinds []faultproxy.Fault) []faultproxy.Rule {
	return append(faultproxy.Spread(part, kinds...), faultproxy.Rule{Probability: part, Fault: slow})
}

// With any of these faults nothing is lost, nothing is counted twice, and there is one
// Event for each series.
func TestNothingIsLostOrCountedTwiceUnderFaults(t *testing.T) {
	var kinds []kind
	for _, f := range allFaults() {
		for _, s := range []shape{oneSeries, aMix, distinctSeries} {
			kinds = append(kinds, kind{f.name + "/" + s.name, func(t *testing.T, seed uint64) outcome {
				proxy := newProxy(t, seed)
				proxy.SetRules(f.rules...)
				trial := newTrial(t, seed, []*faultproxy.Proxy{proxy}, proxy.Config())
				trial.load(t, s)
				return trial.finish(t)
			}})
		}
	}
	makeTrials(t, kinds)
}

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
