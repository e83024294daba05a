package soak

import (
	"slices"
	"testing"
	"time"

	"github.com/eventd/eventd/test/faultproxy"
)

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
