package trail

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/observer"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink"
)

// observed is a version of an Event that others have written.
func observed(uid, namespace string, count int32) observer.Version {
	e := event(namespace, "web-0", "Observed", "")
	e.UID, e.Count = types.UID(uid), count
	return observer.Version{Event: e, Observed: time.Now()}
}

// ranks are the items of an answer: key, occurrences, writes, saved.
func ranks(top Top) string {
	var items []string
	for _, i := range top.Items {
		key := i.Reason + i.Namespace + i.Reporter
		if i.Object != nil {
			key = i.Object.Namespace + "/" + i.Object.Name
		}
		items = append(items, fmt.Sprint(key, " ", i.Occurrences, " ", i.Writes, " ", i.Saved))
	}
	return strings.Join(items, ", ")
}

// Occurrences, writes and what was saved are ranked by all dimensions, and by namespaces.
func TestTheNoisiestAreRanked(t *testing.T) {
	to := newTrail(t, Options{})
	for range 3 {
		record(to, event("shop", "web-0", "BackOff", ""), "jane", 10)
	}
	record(to, event("shop", "web-1", "Pulled", ""), "jane", 4)
	quiet := event("bank", "web-0", "Pulled", "")
	quiet.ReportingController, quiet.Source.Component = "", "scheduler"
	record(to, quiet, "jane", 5)
	to.Ended(&occurrence.Occurrence{Event: quiet, Weight: 2}, occurrence.Settlement{Outcome: occurrence.Filtered, Reason: "noise"})
	drop(to, quiet, "jane", occurrence.QueueFull)
	to.Settled(sink.Part{Event: quiet, User: "jane", Writes: 1}, occurrence.Settlement{Outcome: occurrence.Merged}) // no count
	for _, test := range []struct {
		query TopQuery
		want  string
		sum   int64
	}{
		{TopQuery{By: ByObject}, "shop/web-0 30 3 27, bank/web-0 8 2 6, shop/web-1 4 1 3", 42},
		{TopQuery{}, "shop/web-0 30 3 27, bank/web-0 8 2 6, shop/web-1 4 1 3", 42},
		{TopQuery{Limit: 1}, "shop/web-0 30 3 27", 42},
		{TopQuery{By: ByReason}, "BackOff 30 3 27, Pulled 12 3 9", 42},
		{TopQuery{By: ByReporter}, "kubelet 34 4 30, scheduler 8 2 6", 42},
		{TopQuery{By: ByNamespace}, "shop 34 4 30, bank 8 2 6", 42},
		{TopQuery{By: ByReason, Namespaces: []string{"bank"}}, "Pulled 8 2 6", 8},
		{TopQuery{By: ByReason, Namespaces: []string{"shop", "bank", "shop"}}, "BackOff 30 3 27, Pulled 12 3 9", 42},
		{TopQuery{By: ByObject, Namespaces: []string{"shop"}}, "shop/web-0 30 3 27, shop/web-1 4 1 3", 34},
		{TopQuery{By: ByNamespace, Namespaces: []string{"shop", "other"}}, "shop 34 4 30", 34},
		{TopQuery{Namespaces: []string{}}, "", 0},
	} {
		top := to.Top(test.query)
		if got := ranks(top); got != test.want || top.Occurrences != test.sum {
			t.Errorf("%+v: %s, in all %d; want %s, in all %d", test.query, got, top.Occurrences, test.want, test.sum)
		}
	}
}

// What is older than the window does not count.
func TestRankingsAreOfTheLastMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := newTrail(t, Options{})
		for i := range 10 {
			record(to, event("shop", fmt.Sprint("at-", i), "A", ""), "jane", 1)
			time.Sleep(time.Minute)
		}
		for _, namespaces := range [][]string{nil, {"shop"}} {
			for _, test := range []struct {
				window time.Duration
				items  int
			}{{0, 5}, {time.Hour, 5}, {time.Minute, 1}, {2*time.Minute + time.Second, 3}} {
				top := to.Top(TopQuery{Window: test.window, Namespaces: namespaces})
				if len(top.Items) != test.items {
					t.Errorf("%v of %v: %s, want %d items", test.window, namespaces, ranks(top), test.items)
				}
				if since := top.Until.Sub(top.Since); since > MaxWindow+time.Minute || test.window > 0 && test.window < MaxWindow && since < test.window {
					t.Errorf("the window is %v", since)
				}
			}
		}
	})
}

// The noisiest is the first, and what is listed is right: it happened as often, or more often by at most the error, which
// is less. What is as frequent as all others may be missing, but a namespace of some hundred objects is exact.
func TestTheNoisiestOfANamespaceIsTheFirst(t *testing.T) {
	for name, test := range map[string]struct {
		objects, others, noisy int
		items                  int // at least
		maxError               int64
	}{
		"a tenth of thousands of single objects": {objects: 7000, others: 7000, noisy: 778, items: 1, maxError: 100},
		"a little more than 300 others":          {objects: 300, others: 6500, noisy: 60, items: 20, maxError: 0},
		"none":                                   {objects: 20_000, others: 20_000},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				to := newTrail(t, Options{})
				var names []string
				for i := range test.others {
					names = append(names, fmt.Sprint("pod-", i%test.objects))
				}
				names = append(names, slices.Repeat([]string{"noisy"}, test.noisy)...)
				rand.New(rand.NewPCG(1, 1)).Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
				happened := make(map[string]int64)
				for _, name := range names {
					happened[name]++
					record(to, event("shop", name, "BackOff", ""), "jane", 1)
					time.Sleep(5 * time.Minute / time.Duration(len(names)))
				}
				for _, namespaces := range [][]string{{"shop"}, nil} {
					top := to.Top(TopQuery{Namespaces: namespaces, Limit: 20})
					if len(top.Items) < test.items || test.noisy > 0 && top.Items[0].Object.Name != "noisy" {
						t.Fatalf("of %v: %d items: %s", namespaces, len(top.Items), ranks(top))
					}
					for _, item := range top.Items {
						n := happened[item.Object.Name]
						if n < item.Occurrences || n > item.Occurrences+item.Error || item.Error >= item.Occurrences || item.Error > test.maxError {
							t.Errorf("of %v: %s happened %d times: %+v", namespaces, item.Object.Name, n, item)
						}
					}
				}
			})
		})
	}
}

// A flood of different objects does not hide who is noisy, nor a quiet namespace from those who may see only that.
func TestAFloodOfObjectsHidesNobody(t *testing.T) {
	to := newTrail(t, Options{})
	for i := range 20_000 {
		record(to, event("flood", fmt.Sprint("pod-", i), "Flood", ""), "jane", 1)
		if i%20 == 0 {
			record(to, event("shop", "noisy", "BackOff", ""), "jane", 1)
		}
	}
	record(to, event("quiet", "web-0", "Pulled", ""), "jane", 3)
	top := to.Top(TopQuery{})
	first := top.Items[0]
	if first.Object.Name != "noisy" || first.Occurrences > 1000 || first.Occurrences+first.Error < 1000 {
		t.Errorf("the first of %d is %+v of %+v", len(top.Items), first, first.Object)
	}
	if top.Occurrences != 21_003 {
		t.Errorf("%d occurrences in all", top.Occurrences)
	}
	if got := ranks(to.Top(TopQuery{Namespaces: []string{"quiet"}})); got != "quiet/web-0 3 1 2" {
		t.Errorf("of the quiet namespace: %s", got)
	}
}

// Rankings of many namespaces are bounded. Those that were evicted begin anew, and say when.
func TestRankingsOfNamespacesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := newTrail(t, Options{MaxBytes: MinMaxBytes})
		record(to, event("first", "web-0", "A", ""), "jane", 1)
		time.Sleep(2 * time.Second)
		for i := range 500 {
			record(to, event(fmt.Sprint("ns-", i), "web-0", "A", ""), "jane", 1)
		}
		time.Sleep(2 * time.Second)
		record(to, event("first", "web-0", "A", ""), "jane", 1)
		if n := to.ranked.Len(); n > 100 || n < 5 {
			t.Errorf("%d namespaces have rankings", n)
		}
		top := to.Top(TopQuery{Namespaces: []string{"first"}})
		if ranks(top) != "first/web-0 1 1 0" || !top.Since.After(to.began) {
			t.Errorf("%s since %v", ranks(top), top.Since)
		}
		if top := to.Top(TopQuery{By: ByNamespace}); top.Occurrences != 502 {
			t.Errorf("%+v", top)
		}
	})
}

// What others write counts by its versions, and by how much they add. What eventd has written was recorded.
func TestVersionsOfOthersCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := newTrail(t, Options{})
		time.Sleep(time.Minute)
		at := func(v observer.Version) observer.Version {
			v.Event.CreationTimestamp.Time = time.Now()
			return v
		}
		to.Observed(at(observed("a", "shop", 3)))
		to.Observed(at(observed("a", "shop", 7)))
		to.Observed(at(observed("a", "shop", 2))) // less: it adds nothing
		ours := observed("b", "shop", 100)
		ours.Event.Annotations = map[string]string{identity.Annotation: "ours"}
		to.Observed(ours)
		if got := ranks(to.Top(TopQuery{})); got != "shop/web-0 7 3 0" {
			t.Error(got)
		}
		without := newTrail(t, Options{Unreported: true})
		time.Sleep(time.Minute)
		without.Observed(at(ours))
		without.Observed(at(ours)) // as it was
		if got := ranks(without.Top(TopQuery{})); got != "shop/web-0 100 2 99" {
			t.Error(got)
		}
	})
}

// Two trails rank by different keys, so nobody can choose names that collide.
func TestKeysOfSketchesAreSecret(t *testing.T) {
	k := keyOf(event("shop", "web-0", "A", ""), "")
	a, b := newHash().subject(&k, "A", "kubelet"), newHash().subject(&k, "A", "kubelet")
	for d := range dimensions {
		if a.keys[d] == b.keys[d] {
			t.Errorf("dimension %d has the same key in both", d)
		}
	}
	if k := keyOf(&corev1.Event{}, ""); a.keys == newHash().subject(&k, "", "").keys {
		t.Error("another subject has the same keys")
	}
}
