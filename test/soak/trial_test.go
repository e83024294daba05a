package soak

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink"
	"github.com/eventd/eventd/test/faultproxy"
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
