package sink

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eventd/eventd/pkg/occurrence"
)

// seriesOfFlows returns how many series each flow has pending.
func (b *bench) seriesOfFlows() map[flowKey]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make(map[flowKey]int)
	for key, f := range b.fair.flows {
		out[key] = f.series
	}
	return out
}

// outcomes counts occurrences that were written, and others.
type outcomes struct{ written, lost int }

func (c *outcomes) count(o *occurrence.Occurrence) {
	o.Settled = func(s occurrence.Settlement) {
		if s.Counted() {
			c.written++
		} else {
			c.lost++
		}
	}
}

// A hanging webhook in one namespace, with new series all the time, costs no other
// namespace a Warning.
func TestNamespaceThatHangsTakesNoPlaceOfOthers(t *testing.T) {
	for name, limit := range map[string]func(*Options){
		"series": func(o *Options) { o.MaxPendingSeries, o.Concurrency = 200, 20 },
		"bytes":  func(o *Options) { o.MaxPendingBytes, o.Concurrency = 200*1400, 20 }, // each takes about 1.3 KiB
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, &fake{answer: in("stuck", hang)}, limit, func(t *testing.T, b *bench) {
				var got outcomes
				for i := range 1000 { // 100 a second
					b.record(i, inNamespace("stuck"), warning)
					if i >= 300 && i%5 == 0 {
						b.record(i, inNamespace(fmt.Sprint("other-", i%3)), warning, got.count)
					}
					pass(10 * time.Millisecond)
				}
				if want := (outcomes{written: 140}); got != want {
					t.Errorf("occurrences of others: %+v, want %+v", got, want)
				}
			})
		})
	}
}

// A tenant that reports more Warnings than may be written costs no other a Warning.
func TestTenantThatFloodsTakesNoPlaceOfOthers(t *testing.T) {
	bubble(t, &fake{}, func(o *Options) { o.MaxPendingSeries, o.QPS, o.Burst = 100, 20, 20 }, func(t *testing.T, b *bench) {
		var got outcomes
		for i := range 2000 { // 200 a second
			b.record(i, inNamespace("noisy"), by("system:serviceaccount:noisy:a"), warning)
			if i%40 == 0 {
				b.record(i, inNamespace("quiet"), by("system:serviceaccount:quiet:a"), warning, got.count)
			}
			time.Sleep(5 * time.Millisecond)
		}
		pass(time.Second)
		if want := (outcomes{written: 50}); got != want {
			t.Errorf("occurrences of the quiet tenant: %+v, want %+v", got, want)
		}
	})
}

// Nor does it delay another in a namespace that both use.
func TestTenantThatFloodsDelaysNoOtherInItsNamespace(t *testing.T) {
	bubble(t, &fake{}, func(o *Options) { o.QPS, o.Burst = 1, 1 }, func(t *testing.T, b *bench) {
		var got outcomes
		b.recordEach(100, by("noisy"))
		b.record(100, by("quiet"), got.count)
		pass(5 * time.Second)
		if got.written != 1 {
			t.Error("it waits")
		}
	})
}

// A namespace or tenant above its share makes room for those below, and nobody else does.
func TestSharesOfNamespacesAndTenants(t *testing.T) {
	const limit, own, other = 120, "system:serviceaccount:own:a", "system:serviceaccount:other:a"
	type reports struct {
		namespace, user string
		series          int
	}
	inNamespaces := func(prefix string, n int, user string, series int) (out []reports) {
		for i := range n {
			out = append(out, reports{fmt.Sprint(prefix, i), user, series})
		}
		return out
	}
	nodes := func(n, series int) (out []reports) {
		for i := range n {
			out = append(out, reports{"default", fmt.Sprint("system:node:", i), series})
		}
		return out
	}
	then := func(first []reports, later ...reports) []reports { return append(first, later...) }
	type least = map[flowKey]int
	owner, others := occurrence.TenantOf(own), occurrence.TenantOf(other)
	for name, test := range map[string]struct {
		reports []reports // in order
		want    least
	}{
		"one namespace may have all":      {[]reports{{"a", "", 200}}, least{{"a", ""}: limit}},
		"two namespaces have a half each": {[]reports{{"a", "", 200}, {"b", "", 200}}, least{{"a", ""}: 60, {"b", ""}: 60}},
		"a namespace below its share loses nothing": {
			then(inNamespaces("a", 3, "", 20), reports{"flood", "", 500}),
			least{{"a0", ""}: 20, {"a1", ""}: 20, {"a2", ""}: 20, {"flood", ""}: 60},
		},
		"tenants in namespaces of their own": {
			[]reports{{"own", own, 200}, {"other", other, 200}}, least{{"own", owner}: 60, {"other", others}: 60},
		},
		"a tenant has one share in many namespaces": {
			then(inNamespaces("a", 5, own, 30), reports{"other", other, 60}), least{{"other", others}: 60},
		},
		"a tenant has one share in as many namespaces as there can be": {
			then(inNamespaces("a", limit, own, 1), reports{"other", other, 60}), least{{"other", others}: 60},
		},
		"a ServiceAccount more is no tenant more": {
			[]reports{{"own", own, 200}, {"own", own + "b", 200}, {"own", own + "c", 200}, {"other", other, 60}},
			least{{"other", others}: 60},
		},
		"tenants of one namespace share its share": {
			then([]reports{{"default", own, 500}}, nodes(30, 3)...),
			least{{"default", owner}: 30, {"default", "system:node:0"}: 3, {"default", "system:node:29"}: 3},
		},
		"tenants of one namespace evict each other until they are equal but for one": {
			append([]reports{{"odd", "", 1}}, nodes(2, 200)...),
			least{{"odd", ""}: 1, {"default", "system:node:0"}: 60, {"default", "system:node:1"}: 59},
		},
		"tenants of one namespace push out no other namespace": {
			then(nodes(100, 3), reports{"other", other, 60}), least{{"other", others}: 60},
		},
		"namespaces of one tenant share its share": {
			[]reports{{"stuck", own, 500}, {"other", other, 60}, {"a", own, 20}},
			least{{"a", owner}: 20, {"stuck", owner}: 40, {"other", others}: 60},
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, &fake{}, func(o *Options) { o.MaxPendingSeries = limit }, func(t *testing.T, b *bench) {
				for _, r := range test.reports {
					for i := range r.series {
						b.recordLater(i, time.Hour, warning, inNamespace(r.namespace), by(r.user), component(r.user))
					}
				}
				got := b.seriesOfFlows()
				if p := b.Pending().Series; p > limit || b.fair.series > limit {
					t.Errorf("%d series are pending, %d of flows", p, b.fair.series)
				}
				for key, n := range test.want {
					if got[key] < n {
						t.Errorf("%d of %v are pending, want %d", got[key], key, n)
					}
				}
			})
		})
	}
}

// component makes the series of different users different, as usual.
func component(name string) change {
	return func(o *occurrence.Occurrence) { o.Event.Source.Component = name }
}

// The Warnings of a storm of Events about Nodes outlive its Normals, whoever else
// reports.
func TestWarningsOfANodeStormSurvive(t *testing.T) {
	const nodes, warningsOfEach, normalsOfEach = 100, 2, 6
	for name, others := range map[string]int{"alone": 0, "beside other namespaces": 3, "beside one that floods": 1000} {
		t.Run(name, func(t *testing.T) {
			bubble(t, &fake{}, func(o *Options) { o.MaxPendingSeries = 400 }, func(t *testing.T, b *bench) {
				for i := range others {
					namespace := "other"
					if others < 10 {
						namespace = fmt.Sprint("other-", i)
					}
					b.recordLater(i, time.Hour, inNamespace(namespace), by("system:serviceaccount:"+namespace+":a"), warning)
				}
				refused := 0
				count := func(o *occurrence.Occurrence) {
					o.Settled = func(occurrence.Settlement) { refused++ }
					o.Deferred = func() { o.Settled = nil }
				}
				for n := range nodes {
					node := []change{inNamespace("default"), by(fmt.Sprint("system:node:", n)), component(fmt.Sprint("node-", n))}
					for i := range normalsOfEach {
						b.recordLater(i, time.Hour, node...)
					}
					for i := range warningsOfEach {
						b.recordLater(normalsOfEach+i, time.Hour, append(node, warning, count)...)
					}
				}
				pending := 0
				for _, p := range b.pending {
					if p.counter.Namespace == "default" && p.counter.EventType == "Warning" {
						pending++
					}
				}
				if pending != nodes*warningsOfEach || refused > 0 {
					t.Errorf("%d of %d Warnings are pending, %d refused", pending, nodes*warningsOfEach, refused)
				}
			})
		})
	}
}

// Repeats are evicted first, then deferred Normals, then Warnings. Acknowledged occurrences
// are evicted after all of them, and have a reason of their own. A caller that waits for the
// outcome gets it.
func TestEvictionGoesByWhatItCosts(t *testing.T) {
	bubble(t, &fake{}, func(o *Options) { o.MaxPendingSeries = 6 }, func(t *testing.T, b *bench) {
		b.record(2)
		b.record(5)
		synctest.Wait()
		var got []occurrence.Settlement
		b.recordLater(0, time.Hour, warning, onSettled(func(s occurrence.Settlement) { got = append(got, s) }))
		b.recordLater(1, time.Hour)
		b.recordLater(2, time.Hour) // a repeat
		b.recordLater(3, time.Hour, warning, acknowledge)
		b.recordLater(4, time.Hour, acknowledge)
		b.recordLater(5, time.Hour, acknowledge) // a repeat
		for i, next := range []string{"pod-2", "pod-1", "pod-0", "pod-5", "pod-4"} {
			want := b.objects("ns")
			delete(want, next)
			b.recordLater(i, time.Hour, inNamespace(fmt.Sprint("other-", i)))
			if got := b.objects("ns"); len(got) != 5-i || !maps.Equal(got, want) {
				t.Errorf("%v are left, want %v", got, want)
			}
		}
		b.wantEnds(ends{written: 2, occurrence.PendingFull: 3, occurrence.AcknowledgedEvicted: 2})
		want := occurrence.Settlement{Outcome: occurrence.Dropped, Reason: occurrence.PendingFull}
		if len(got) != 1 || got[0] != want {
			t.Errorf("the callback got %+v, want %+v", got, want)
		}
	})
}

// What is added to the series of another is charged to the user who reports it, and its
// eviction leaves the other's occurrences alone.
func TestEachIsChargedForWhatItReports(t *testing.T) {
	const kib = 1 << 10
	bubble(t, &fake{}, func(o *Options) { o.MaxPendingBytes = 64 * kib }, func(t *testing.T, b *bench) {
		b.recordLater(0, time.Hour, warning, by("victim"))
		var end occurrence.Settlement
		for range 40 { // of the same series
			b.recordLater(0, time.Hour, warning, by("attacker"), func(o *occurrence.Occurrence) {
				o.Event.Message = strings.Repeat("a", kib)
				o.Settled = func(s occurrence.Settlement) { end = s }
			})
		}
		if end.Reason != occurrence.PendingFull {
			t.Fatalf("it is not full: %+v", end)
		}
		for i := range 10 {
			b.recordLater(1+i, time.Hour, warning, by("victim"))
		}
		if got := b.seriesOfFlows(); got[flowKey{"ns", "victim"}] != 11 || got[flowKey{"ns", "attacker"}] != 0 {
			t.Errorf("pending %v", got)
		}
	})
}
