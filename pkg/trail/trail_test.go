package trail

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/correlator"
	"github.com/eventd/eventd/pkg/delivery"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink"
	"github.com/eventd/eventd/test/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testenv.Runner(m)) }

func want(t *testing.T, what string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// Whoever asks reads in order what was done, and how often.
func TestEqualStepsAreOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to, began := newTrail(t, Options{}), time.Now()
		e := event("shop", "web-0", "BackOff", "restarting")
		decide(to, e, "kubelet", 1, correlator.Decision{})
		written := sink.Part{Event: e, User: "kubelet", Weight: 1, Writes: 1}
		object := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "web-0.1"}}
		time.Sleep(time.Second)
		to.Settled(written, occurrence.Settlement{Outcome: occurrence.Created, Object: object})
		for range 3 {
			time.Sleep(time.Second)
			decide(to, e, "kubelet", 2, correlator.Decision{Reason: correlator.Repeat, Delay: time.Minute, Deferred: correlator.Spaced})
		}
		time.Sleep(time.Minute)
		written.Weight = 6
		to.Settled(written, occurrence.Settlement{Outcome: occurrence.Merged, Object: object})
		steps := why(to, "web-0")
		want(t, "steps", []string{
			"web-0 settled 1 created restarting",
			"web-0 recorded 7 restarting",
			"web-0 merged 6 restarting",
			"web-0 deferred 6 spaced restarting",
			"web-0 settled 6 merged restarting",
		}, lines(steps))
		want(t, "recorded", Step{
			First: time.Unix(0, began.UnixNano()), Time: time.Unix(0, began.Add(4*time.Second).UnixNano()), Action: "recorded", Occurrences: 7,
			User: "kubelet", Namespace: "shop", Event: "web-0.1", Type: "Warning", Reason: "BackOff", Message: "restarting", Reporter: "kubelet",
			Regarding: Object{Kind: "Pod", Namespace: "shop", Name: "web-0", UID: "uid-web-0"},
		}, steps[1])
		if got, until := steps[3].Until, began.Add(4*time.Second+time.Minute); !got.Equal(until) {
			t.Errorf("deferred until %v, want %v", got, until)
		}
	})
}

// Each way that an occurrence can take reads differently.
func TestStepsSayWhatWasDone(t *testing.T) {
	to := newTrail(t, Options{})
	budget, err := occurrence.NewBudget("slow", 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	refused := errors.New("namespace is being terminated")
	combined := event("shop", "aggregated", "BackOff", identity.CombinedPrefix+"first")
	for name, do := range map[string]func(e *corev1.Event, o *occurrence.Occurrence){
		"filtered": func(_ *corev1.Event, o *occurrence.Occurrence) {
			to.DryRun(o, 1, "maybe", "would_drop")
			to.Ended(o, occurrence.Settlement{Outcome: occurrence.Filtered, Reason: "noise"})
		},
		"queued": func(_ *corev1.Event, o *occurrence.Occurrence) {
			to.Ended(o, occurrence.Settlement{Outcome: occurrence.Dropped, Reason: occurrence.QueueFull})
		},
		"terminating": func(e *corev1.Event, _ *occurrence.Occurrence) {
			decide(to, e, "jane", 1, correlator.Decision{})
			to.Settled(sink.Part{Event: e, User: "jane", Weight: 1}, occurrence.Settlement{Outcome: occurrence.Dropped, Reason: occurrence.NamespaceTerminating, Err: refused})
		},
		"budget": func(_ *corev1.Event, o *occurrence.Occurrence) {
			o.Budget = budget
			to.Decided(o, correlator.Decision{Delay: time.Minute, Deferred: correlator.Budget, Target: occurrence.Target{Event: o.Event}})
		},
		"aggregated": func(*corev1.Event, *occurrence.Occurrence) {
			decide(to, combined, "jane", 1, correlator.Decision{Reason: correlator.Combined})
			last := combined.DeepCopy()
			last.Message = identity.CombinedPrefix + "last"
			decide(to, last, "jane", 1, correlator.Decision{Reason: correlator.Combined})
		},
		"adopted": func(e *corev1.Event, _ *occurrence.Occurrence) {
			to.Adopted(sink.Part{Event: e, Weight: 3})
			to.Settled(sink.Part{Event: e, Weight: 3}, occurrence.Settlement{Outcome: occurrence.Found})
		},
		"delivered": func(e *corev1.Event, _ *occurrence.Occurrence) {
			to.Delivered("otlp", e, 0)
			to.Delivered("otlp", e, 2)
			to.NotDelivered("nats", e, "quiet", delivery.NotRouted, nil)
			to.NotDelivered("file", e, "", delivery.Rejected, errors.New("too large"))
		},
		"changed": func(e *corev1.Event, _ *occurrence.Occurrence) { // nothing is counted
			decide(to, e, "jane", 0, correlator.Decision{})
			to.Settled(sink.Part{Event: e, User: "jane", Writes: 1}, occurrence.Settlement{Outcome: occurrence.Merged})
		},
	} {
		e := event("shop", name, "BackOff", "restarting")
		do(e, &occurrence.Occurrence{Event: e, User: "jane", Weight: 1})
	}
	for name, steps := range map[string][]string{
		"filtered":    {"would_be 1 would_drop maybe", "recorded 1", "filtered 1 filtered noise"},
		"queued":      {"recorded 1", "settled 1 dropped queue_full"},
		"terminating": {"recorded 1", "settled 1 dropped namespace_terminating namespace is being terminated"},
		"budget":      {"recorded 1", "deferred 1 budget slow"},
		"adopted":     {"recorded 3 adopted", "settled 3 found"},
		"delivered": {"delivered 1 otlp", "delivered 1 partly_rejected otlp",
			"not_delivered 1 filtered quiet nats", "not_delivered 1 rejected file too large"},
		"changed": {},
		"none":    {},
	} {
		for i := range steps {
			steps[i] = name + " " + steps[i] + " restarting"
		}
		got := lines(why(to, name))
		slices.Sort(got)
		slices.Sort(steps)
		want(t, name, steps, got)
	}
	want(t, "aggregated", []string{
		"aggregated recorded 2 (combined from similar events): last", "aggregated aggregated 2 (combined from similar events): last",
	}, lines(why(to, "aggregated")))
}

// What is asked for matches all that is given.
func TestQueriesMatch(t *testing.T) {
	to := newTrail(t, Options{})
	for _, namespace := range []string{"shop", "bank"} {
		for _, name := range []string{"web-0", "web-1"} {
			decide(to, event(namespace, name, "A", namespace), "jane", 1, correlator.Decision{})
			decide(to, event(namespace, name, "A", namespace), "joe", 1, correlator.Decision{})
		}
	}
	for _, test := range []struct {
		query Query
		want  int
	}{
		{Query{}, 8},
		{Query{Limit: 3}, 3},
		{Query{Object: Object{Name: "web-0"}}, 4},
		{Query{Object: Object{Name: "web-0"}, Namespaces: []string{"shop"}}, 2},
		{Query{Object: Object{Name: "web-0", Namespace: "shop"}}, 2},
		{Query{Object: Object{Name: "web-0", Namespace: "shop"}, Namespaces: []string{"bank"}}, 0},
		{Query{Namespaces: []string{"shop"}}, 4},
		{Query{Namespaces: []string{}}, 0},
		{Query{Object: Object{Kind: "Pod"}}, 8},
		{Query{Object: Object{Kind: "Node", Name: "web-0"}}, 0},
		{Query{Object: Object{UID: "uid-web-1"}}, 4},
		{Query{Object: Object{UID: "uid-web-1", Name: "web-0"}}, 0},
	} {
		steps, since, forgotten := to.Why(test.query)
		if len(steps) != test.want || !since.Equal(to.began) && since.UnixNano() != to.began.UnixNano() || forgotten {
			t.Errorf("%+v: %d steps since %v, forgotten %v; want %d", test.query, len(steps), since, forgotten, test.want)
		}
	}
}

func TestDropsAreTheNewestFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := newTrail(t, Options{})
		for _, name := range []string{"a", "b", "c", "a"} {
			for _, namespace := range []string{"shop", "bank"} {
				time.Sleep(time.Second)
				drop(to, event(namespace, name, "A", namespace), "jane", occurrence.Invalid)
				record(to, event(namespace, name, "B", namespace), "jane", 1)
			}
		}
		for _, test := range []struct {
			query Query
			want  string
		}{
			{Query{}, "bank/a shop/a bank/c shop/c bank/b shop/b"},
			{Query{Limit: 2}, "bank/a shop/a"},
			{Query{Namespaces: []string{"shop"}}, "shop/a shop/c shop/b"},
			{Query{Namespaces: []string{"shop", "shop", "bank"}, Limit: 3}, "bank/a shop/a bank/c"},
			{Query{Namespaces: []string{"other"}}, ""},
			{Query{Object: Object{Name: "b"}}, "bank/b shop/b"},
			{Query{Object: Object{Name: "b"}, Namespaces: []string{"bank"}}, "bank/b"},
		} {
			steps, _ := to.Drops(test.query)
			var got []string
			for _, s := range steps {
				got = append(got, s.Namespace+"/"+s.Regarding.Name)
			}
			if text := strings.Join(got, " "); text != test.want {
				t.Errorf("%+v: %s, want %s", test.query, text, test.want)
			}
		}
	})
}

type panicking struct{}

func (panicking) Error() string { panic("no") }

func TestErrorsOfCustomSinksMayPanic(t *testing.T) {
	to := newTrail(t, Options{})
	to.Settled(sink.Part{Event: event("shop", "web-0", "A", ""), Weight: 1}, occurrence.Settlement{Outcome: occurrence.Dropped, Reason: occurrence.Refused, Err: panicking{}})
	want(t, "steps", []string{"web-0 settled 1 dropped refused"}, lines(why(to, "web-0")))
}

func TestOptions(t *testing.T) {
	for _, bytes := range []int64{-1, 1, MinMaxBytes - 1} {
		if _, err := New(Options{MaxBytes: bytes}); err == nil {
			t.Errorf("%d bytes are accepted", bytes)
		}
	}
	r := prometheus.NewPedanticRegistry()
	to := newTrail(t, Options{MaxBytes: MinMaxBytes, Registerer: r})
	for i := range 5000 {
		record(to, event("shop", fmt.Sprint(i), "A", ""), "jane", 1)
	}
	if problems, err := testutil.GatherAndLint(r); err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
	if n := testutil.ToFloat64(to.evictions); n != float64(5000-to.traces.Len()) {
		t.Errorf("%v evictions, %d are left", n, to.traces.Len())
	}
	if _, err := New(Options{Registerer: r}); err == nil {
		t.Error("the metrics are registered twice")
	}
}

// All may be called at once.
func TestATrailIsSafeForConcurrentUse(t *testing.T) {
	to := newTrail(t, Options{MaxBytes: MinMaxBytes})
	f := to.Follow()
	defer f.Close()
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for n := range 1500 {
				e := event(fmt.Sprint("ns-", n%3), fmt.Sprint("pod-", i, n), "A", "message")
				record(to, e, "jane", 1)
				drop(to, e, "jane", occurrence.Invalid)
				to.Delivered("otlp", e, 0)
			}
		})
	}
	for range 2 {
		wg.Go(func() {
			for range 50 {
				to.Why(Query{Object: Object{Kind: "Pod"}, Limit: 300})
				to.Drops(Query{Limit: 300})
				to.Drops(Query{Namespaces: []string{"ns-1"}})
				to.Top(TopQuery{Namespaces: []string{"ns-1"}, By: ByReason})
			}
		})
	}
	wg.Wait()
	if steps, lost := f.Read(10); len(steps) != 10 || lost == 0 {
		t.Errorf("%d steps, %d lost", len(steps), lost)
	}
}
