package faultproxy

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

func TestEventWritesAreRecognized(t *testing.T) {
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	var protobuf bytes.Buffer
	event := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	encoder := scheme.Codecs.EncoderForVersion(info.Serializer, schema.GroupVersion{Version: "v1"})
	if err := encoder.Encode(event, &protobuf); err != nil {
		t.Fatal(err)
	}
	const group = "events.k8s.io"
	_, p, c := setUp(t)
	var want Record
	for _, test := range []struct {
		method, path, body string
		want               Request
	}{
		{"POST", core, eventNamed("a"), Request{"create", "", "ns", "a"}},
		{"POST", events, eventNamed("a"), Request{"create", group, "ns", "a"}},
		{"POST", core + "?timeout=5s", protobuf.String(), Request{"create", "", "ns", "a"}},
		{"POST", core, "?", Request{"create", "", "ns", ""}},
		{"PUT", core + "/a.b", eventNamed("a"), Request{"update", "", "ns", "a.b"}},
		{"PATCH", events + "/a.b", `{"series":{}}`, Request{"patch", group, "ns", "a.b"}},
	} {
		c.do(t.Context(), test.method, test.path, test.body).want(t, 201)
		want = append(want, Entry{Request: test.want, Forwarded: true, Status: 201, Answer: 201, Ended: true})
	}
	if got := p.Record(); !slices.Equal(got, want) {
		t.Errorf("recorded is %+v, want %+v", got, want)
	}
}

func TestEverythingElsePassesWithoutAFault(t *testing.T) {
	backend, p, c := setUp(t, always(BeforeWrite(Status(500))))
	for _, test := range [][2]string{
		{"GET", core + "/a"}, {"GET", core}, {"DELETE", core + "/a"}, {"DELETE", core},
		{"POST", core + "/a"}, {"PATCH", core}, {"PUT", core + "/a/status"},
		{"POST", "/api/v1/namespaces"}, {"POST", "/api/v1/namespaces/ns/pods"}, {"GET", "/apis/events.k8s.io/v1/events"},
		{"POST", "/apis/apps/v1/namespaces/ns/events"}, {"GET", "/readyz?verbose"},
	} {
		c.do(t.Context(), test[0], test[1], "").want(t, 201)
		if w := receive(t, backend.arrived); w.method != test[0] || w.path != test[1] {
			t.Errorf("%v: the backend got %+v", test, w)
		}
	}
	if r := p.Record(); len(r) != 0 {
		t.Errorf("recorded is %+v", r)
	}
}

func TestFirstRuleThatMatchesAndStrikesIsTheOnlyOne(t *testing.T) {
	p := &Proxy{key: verbAndName, writes: map[string]uint64{}}
	refuse, reset := BeforeWrite(Status(503)), BeforeWrite(ResetStream)
	p.SetRules(
		Rule{Match: Match{NamePrefix: "spared"}, Probability: 1}, // protects
		Rule{Match: Match{NamePrefix: "never"}, Probability: 0, Fault: BeforeWrite(Hang)},
		Rule{Match: Match{Namespace: "ns", NamePrefix: "pod"}, Probability: 1, Fault: refuse},
		Rule{Probability: 1, Fault: reset},
	)
	for want, requests := range map[string][]Request{
		"":              {{Namespace: "ns", Name: "spared"}},
		refuse.String(): {{Namespace: "ns", Name: "pod"}, {Namespace: "ns", Name: "pod-1"}},
		reset.String():  {{Namespace: "n", Name: "pod"}, {Namespace: "ns", Name: "po"}, {Namespace: "ns", Name: "never"}},
	} {
		for _, r := range requests {
			if fault, _ := p.decide(r); fault.String() != want {
				t.Errorf("%+v is struck by %q, want %q", r, fault, want)
			}
		}
	}
}

// fates are the faults of many requests per key, in a random order.
func fates(seed, order uint64) map[string][]string {
	p := &Proxy{seed: seed, writes: map[string]uint64{}}
	p.SetKey(verbAndName)
	p.SetRules(
		Rule{Match: Match{NamePrefix: "1"}, Probability: 0.3, Fault: BeforeWrite(Status(500))},
		Rule{Probability: 0.3, Fault: Slow(nil, nil)},
	)
	var requests []Request
	for i := range 20 {
		for range 50 {
			requests = append(requests, Request{Verb: "create", Name: fmt.Sprint(i)}, Request{Verb: "patch", Name: fmt.Sprint(i)})
		}
	}
	rng := rand.New(rand.NewPCG(order, order))
	rng.Shuffle(len(requests), func(i, j int) { requests[i], requests[j] = requests[j], requests[i] })
	all := map[string][]string{}
	for _, r := range requests {
		fault, rng := p.decide(r)
		all[verbAndName(r)] = append(all[verbAndName(r)], fmt.Sprint(fault, rng.Uint64()))
	}
	return all
}

func TestFateDependsOnSeedKeyAndNumberOnly(t *testing.T) {
	first := fates(7, 1)
	if !maps.EqualFunc(first, fates(7, 2), slices.Equal) {
		t.Error("the order of other keys makes a difference")
	}
	other := fates(8, 1)
	for _, key := range []string{"create 1", "create 2", "patch 2"} {
		if slices.Equal(first[key], other[key]) {
			t.Errorf("the seed makes no difference to %s", key)
		}
	}
	if slices.Equal(first["create 1"], first["create 2"]) || slices.Equal(first["create 1"], first["patch 1"]) {
		t.Error("the key makes no difference")
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
		p := &Proxy{seed: 1, key: verbAndName, writes: map[string]uint64{}}
		p.SetRules(test.rules...)
		struck := map[string]float64{}
		for i := range keys * perKey {
			fault, _ := p.decide(Request{Verb: "create", Name: fmt.Sprint(i % keys)})
			struck[fault.String()] += 1.0 / keys / perKey
		}
		// Four standard deviations; the seed is fixed, so it holds or does not.
		if !maps.EqualFunc(struck, test.want, func(got, want float64) bool {
			return math.Abs(got-want) <= 4*math.Sqrt(want*(1-want)/keys/perKey)+1e-9
		}) {
			t.Errorf("%s: struck are %v of the writes, want %v", name, struck, test.want)
		}
	}
}

func TestDelaysStayWithinTheirBounds(t *testing.T) {
	rng := generator(1, "", 1)
	for name, test := range map[string]struct {
		delay             Delay
		least, mean, most time.Duration
	}{
		"none":        {nil, 0, 0, 0},
		"fixed":       {Fixed(time.Second), time.Second, time.Second, time.Second},
		"uniform":     {Uniform(time.Second, 3*time.Second), time.Second, 2 * time.Second, 3 * time.Second},
		"exponential": {Exponential(time.Second, time.Minute), 0, time.Second, time.Minute},
		"cut off":     {Exponential(time.Hour, time.Nanosecond), time.Nanosecond, time.Nanosecond, time.Nanosecond},
	} {
		const n = 10000
		var sum time.Duration
		for range n {
			d := test.delay.draw(rng)
			if d < test.least || d > test.most {
				t.Fatalf("%s: %v", name, d)
			}
			sum += d
		}
		if off := (sum/n - test.mean).Abs(); off > test.mean/20 {
			t.Errorf("%s: %v on average, want about %v", name, sum/n, test.mean)
		}
	}
}
