package faultproxy

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestMatchNeedsAllOfItsFields(t *testing.T) {
	r := Request{Verb: Patch, API: EventsV1, Namespace: "ns", Name: "pod-1.abc", Empty: true, Number: 2}
	for name, test := range map[string]struct {
		match Match
		want  bool
	}{
		"empty":             {Match{}, true},
		"all":               {Match{"ns", "pod-1."}, true},
		"another namespace": {Match{Namespace: "n"}, false},
		"another name":      {Match{NamePrefix: "pod-2"}, false},
		"all but one":       {Match{"ns", "node"}, false},
	} {
		if got := test.match.matches(r); got != test.want {
			t.Errorf("%s: matches is %v", name, got)
		}
	}
}

func TestFirstRuleThatStrikesIsTheOnlyOne(t *testing.T) {
	backend := newFake(t)
	p := New(t, backend.config, 1)
	p.SetRules(
		Rule{Match: Match{NamePrefix: "spared"}, Probability: 1}, // protects
		Rule{Match: Match{NamePrefix: "never"}, Probability: 0, Fault: BeforeWrite(Status(429))},
		Rule{Match: Match{Namespace: "ns"}, Probability: 1, Fault: BeforeWrite(Status(503))},
		Rule{Probability: 1, Fault: BeforeWrite(Status(500))},
	)
	c := clientOf(t, p)
	for _, test := range []struct {
		namespace, name string
		code            int
	}{{"ns", "spared", 201}, {"ns", "never", 503}, {"ns", "a", 503}, {"other", "a", 500}} {
		if g := c.create(t.Context(), test.namespace, test.name); g.code != test.code {
			t.Errorf("%s/%s: %d, want %d", test.namespace, test.name, g.code, test.code)
		}
	}
}

func TestRulesCanBeSwappedWhileWritesAreUnderWay(t *testing.T) {
	backend, p, c := setUp(t)
	release := backend.holdWrites(t)
	passing := c.start(t.Context(), "ns", "a")
	backend.waitArrived(t, 1)
	p.SetRules(always(BeforeWrite(Status(500))))
	if g := c.create(t.Context(), "ns", "a"); g.code != 500 {
		t.Errorf("after the swap the client got %+v", g)
	}
	p.SetRules()
	release()
	wantCreated(t, receive(t, passing))
	wantCreated(t, c.create(t.Context(), "ns", "a"))
}

func TestRulesThatMakeNoSensePanic(t *testing.T) {
	p := New(t, newFake(t).config, 1)
	for name, set := range map[string]func(){
		"rule 0 has the probability 1.1":                            func() { p.SetRules(Rule{Probability: 1.1}) },
		"rule 1 has the probability NaN":                            func() { p.SetRules(Rule{}, Rule{Probability: math.NaN()}) },
		"rule 0 has an answer with the code 200, which is no error": func() { p.SetRules(always(AfterWrite(Status(200)))) },
		"rule 0 has a fault without an ending":                      func() { p.SetRules(always(BeforeWrite(nil))) },
	} {
		func() {
			defer func() {
				if said := fmt.Sprint(recover()); !strings.Contains(said, name) {
					t.Errorf("the panic says %q, want %q", said, name)
				}
			}()
			set()
		}()
	}
}

// fates are the faults of many requests per key, in a shuffled order.
func fates(seed uint64, order *rand.Rand) map[string][]string {
	p := &Proxy{dice: newDice(seed)}
	p.SetRules(
		Rule{Match: Match{NamePrefix: "1"}, Probability: 0.3, Fault: BeforeWrite(Status(500))},
		Rule{Probability: 0.3, Fault: Slow(Uniform(0, time.Second), Exponential(time.Second, time.Minute))},
	)
	var asked []Request
	for i := range 20 {
		for range 50 {
			asked = append(asked, Request{Verb: Create, Name: fmt.Sprint(i)}, Request{Verb: Patch, Name: fmt.Sprint(i)})
		}
	}
	order.Shuffle(len(asked), func(i, j int) { asked[i], asked[j] = asked[j], asked[i] })
	all := map[string][]string{}
	for _, r := range asked {
		d := p.decide(r)
		all[verbAndName(r)] = append(all[verbAndName(r)], fmt.Sprint(d.number, d.Fault, d.before, d.after))
	}
	return all
}

func TestFateDependsOnSeedKeyAndNumberOnly(t *testing.T) {
	first, again, other := fates(7, rand.New(rand.NewPCG(1, 1))), fates(7, rand.New(rand.NewPCG(2, 2))), fates(8, rand.New(rand.NewPCG(1, 1)))
	same := 0
	for key, want := range first {
		if !slices.Equal(again[key], want) {
			t.Errorf("%s: %v, and in another order %v", key, want, again[key])
		}
		same += one(slices.Equal(other[key], want))
	}
	if same == len(first) {
		t.Error("the seed makes no difference")
	}
	if slices.Equal(first["create 1"], first["create 2"]) || slices.Equal(first["patch 1"], first["patch 2"]) {
		t.Error("the name makes no difference")
	}
}

func TestShareThatIsStruckIsTheProbability(t *testing.T) {
	const keys, perKey = 200, 100
	hang, reset, refuse := BeforeWrite(Hang), BeforeWrite(ResetStream), BeforeWrite(Status(500))
	for name, test := range map[string]struct {
		rules []Rule
		want  map[string]float64
	}{
		"one after the other": {
			[]Rule{{Probability: 0.1, Fault: hang}, {Probability: 0.2, Fault: reset}}, // 0.2 of what the first leaves
			map[string]float64{hang.String(): 0.1, reset.String(): 0.18, "": 0.72},
		},
		"spread":         {Spread(0.3, hang, reset, refuse), map[string]float64{hang.String(): 0.1, reset.String(): 0.1, refuse.String(): 0.1, "": 0.7}},
		"spread, always": {Spread(1, hang, reset, refuse), map[string]float64{hang.String(): 1. / 3, reset.String(): 1. / 3, refuse.String(): 1. / 3}},
		"spread, never":  {Spread(0, hang, reset), map[string]float64{"": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			p := &Proxy{dice: newDice(1)}
			p.SetRules(test.rules...)
			struck := map[string]float64{}
			for i := range keys {
				for range perKey {
					struck[p.decide(Request{Verb: Create, Name: fmt.Sprint(i)}).String()] += 1.0 / keys / perKey
				}
			}
			for kind, want := range test.want {
				// Four standard deviations; the seed is fixed, so it holds or does not.
				if got := struck[kind]; math.Abs(got-want) > 4*math.Sqrt(want*(1-want)/keys/perKey)+1e-9 {
					t.Errorf("%q: %.4f of the writes, want %.4f", kind, got, want)
				}
				delete(struck, kind)
			}
			if len(struck) != 0 {
				t.Errorf("struck by %v", struck)
			}
		})
	}
}

func TestSetKeyDecidesWhatCountsAsTheSame(t *testing.T) {
	withoutDigest := func(r Request) string {
		object, _, _ := strings.Cut(r.Name, ".")
		return string(r.Verb) + " " + object
	}
	run := func(digest string) (kinds []string) {
		p := New(t, newFake(t).config, 3)
		p.SetKey(withoutDigest)
		p.SetRules(Rule{Probability: 0.5, Fault: BeforeWrite(Status(500))})
		c := clientOf(t, p)
		for range 20 {
			c.create(t.Context(), "ns", "pod."+digest)
		}
		for _, e := range p.Record() {
			kinds = append(kinds, e.Fault)
		}
		return kinds
	}
	a, b := run("1234"), run("5678")
	if !slices.Equal(a, b) || len(a) != 20 || !slices.Contains(a, "") || !slices.Contains(a, "500 before the write") {
		t.Errorf("first %q, then %q", a, b)
	}
}

func TestDelaysStayWithinTheirBounds(t *testing.T) {
	rng := generator(1, "", 1)
	var sum time.Duration
	const n = 10000
	for range n {
		if d := Uniform(time.Second, 2*time.Second).draw(rng); d < time.Second || d > 2*time.Second {
			t.Fatalf("uniform: %v", d)
		}
		if d := Fixed(time.Second).draw(rng); d != time.Second {
			t.Fatalf("fixed: %v", d)
		}
		d := Exponential(time.Second, time.Minute).draw(rng)
		if d < 0 || d > time.Minute {
			t.Fatalf("exponential: %v", d)
		}
		sum += d
	}
	if mean := sum / n; mean < 950*time.Millisecond || mean > 1050*time.Millisecond {
		t.Errorf("exponential: %v on average", mean)
	}
	if d := Exponential(time.Hour, time.Nanosecond).draw(rng); d != time.Nanosecond {
		t.Errorf("exponential, cut off: %v", d)
	}
}
