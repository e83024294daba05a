package sink

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/eventd/eventd/pkg/occurrence"
)

func by(user string) func(*occurrence.Occurrence) {
	return func(o *occurrence.Occurrence) { o.User = user }
}

// acknowledge has a client that is told when its occurrence will be written later.
func acknowledge(o *occurrence.Occurrence) {
	o.Settled, o.Deferred = func(occurrence.Settlement) {}, func() {}
}

// holdings is how many series each flow has pending.
func (b *bench) holdings() map[flowKey]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make(map[flowKey]int)
	for key, f := range b.fair.flows {
		out[key] = f.series
	}
	return out
}

// A hanging webhook in one namespace, with new series all the time, costs no other
// namespace a Warning.
func TestNamespaceThatHangsTakesNoPlaceOfOthers(t *testing.T) {
	for name, limit := range map[string]func(*Options){
		"series": func(o *Options) { o.MaxPendingSeries = 200 },
		"bytes":  func(o *Options) { o.MaxPendingBytes = 200 * 1400 }, // each takes about 1.3 KiB
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, byNamespace{"stuck": hangs}, func(o *Options) { limit(o); o.Concurrency = 20 }, func(t *testing.T, b *bench) {
				lost := make(map[string]int)
				count := func(o *occurrence.Occurrence) {
					namespace := o.Event.Namespace
					o.Settled = func(s occurrence.Settlement) {
						if !s.Counted() {
							lost[namespace]++
						}
					}
				}
				for i := range 1000 { // 100 a second
					b.record(i, inNamespace("stuck"), warning)
					if i >= 300 && i%5 == 0 {
						b.record(i, inNamespace(fmt.Sprint("other-", i%3)), warning, count)
					}
					time.Sleep(10 * time.Millisecond)
				}
				if len(lost) > 0 {
					t.Errorf("lost %v of others", lost)
				}
				b.stopAtOnce()
			})
		})
	}
}

// A tenant that reports more Warnings than may be written costs no other a Warning.
func TestTenantThatFloodsTakesNoPlaceOfOthers(t *testing.T) {
	bubble(t, byNamespace{}, func(o *Options) { o.MaxPendingSeries, o.QPS, o.Burst = 100, 20, 20 }, func(t *testing.T, b *bench) {
		lost, written := 0, 0
		count := func(o *occurrence.Occurrence) {
			o.Settled = func(s occurrence.Settlement) {
				if s.Counted() {
					written++
				} else {
					lost++
				}
			}
		}
		for i := range 2000 { // 200 a second
			b.record(i, inNamespace("noisy"), by("system:serviceaccount:noisy:a"), warning)
			if i%40 == 0 {
				b.record(i, inNamespace("quiet"), by("system:serviceaccount:quiet:a"), warning, count)
			}
			time.Sleep(5 * time.Millisecond)
		}
		pass(time.Second)
		if lost > 0 || written != 50 {
			t.Errorf("%d of the quiet one's lost, and %d written", lost, written)
		}
	})
}

// Who is above its share makes room for who is below, and nobody else does.
func TestSharesOfNamespacesAndTenants(t *testing.T) {
	type reports struct {
		namespace, user string
		series          int
	}
	const limit = 120
	own, other := "system:serviceaccount:own:a", "system:serviceaccount:other:a"
	inEach := func(user string, series int, namespaces ...string) (out []reports) {
		for _, n := range namespaces {
			out = append(out, reports{n, user, series})
		}
		return out
	}
	nodes := func(n, series int) (out []reports) {
		for i := range n {
			out = append(out, reports{"default", fmt.Sprint("system:node:", i), series})
		}
		return out
	}
	key := func(namespace, user string) flowKey { return flowKey{namespace, occurrence.TenantOf(user)} }
	for name, test := range map[string]struct {
		before, then []reports
		want         map[flowKey]int // not less
	}{
		"one namespace may have all": {
			then: []reports{{"a", "", 200}},
			want: map[flowKey]int{key("a", ""): limit},
		},
		"two namespaces have a half each": {
			before: []reports{{"a", "", 200}}, then: []reports{{"b", "", 200}},
			want: map[flowKey]int{key("a", ""): 60, key("b", ""): 60},
		},
		"whoever is below its share loses nothing": {
			before: inEach("", 20, "a", "b", "c"), then: []reports{{"flood", "", 500}},
			want: map[flowKey]int{key("a", ""): 20, key("b", ""): 20, key("c", ""): 20, key("flood", ""): 60},
		},
		"tenants in namespaces of their own": {
			before: []reports{{"own", own, 200}}, then: []reports{{"other", other, 200}},
			want: map[flowKey]int{key("own", own): 60, key("other", other): 60},
		},
		"a tenant has one share in many namespaces": {
			before: inEach(own, 30, "a", "b", "c", "d", "e"), then: []reports{{"other", other, 60}},
			want: map[flowKey]int{key("other", other): 60},
		},
		"a tenant has one share in as many namespaces as there can be": {
			before: inEach(own, 1, names(limit)...), then: []reports{{"other", other, 60}},
			want: map[flowKey]int{key("other", other): 60},
		},
		"a ServiceAccount more is no tenant more": {
			before: []reports{{"own", own, 200}, {"own", own + "b", 200}, {"own", own + "c", 200}}, then: []reports{{"other", other, 60}},
			want: map[flowKey]int{key("other", other): 60},
		},
		"tenants of one namespace share its share": {
			before: []reports{{"default", own, 500}}, then: nodes(30, 3),
			want: map[flowKey]int{key("default", own): 30, key("default", "system:node:0"): 3, key("default", "system:node:29"): 3},
		},
		"tenants of one namespace push out no other namespace": {
			before: nodes(100, 3), then: []reports{{"other", other, 60}},
			want: map[flowKey]int{key("other", other): 60},
		},
		"namespaces of one tenant share its share": {
			before: []reports{{"stuck", own, 500}, {"other", other, 60}}, then: []reports{{"a", own, 20}},
			want: map[flowKey]int{key("a", own): 20, key("stuck", own): 40, key("other", other): 60},
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, byNamespace{}, func(o *Options) { o.MaxPendingSeries = limit }, func(t *testing.T, b *bench) {
				for _, r := range append(test.before, test.then...) {
					for i := range r.series {
						b.recordLater(i, time.Hour, warning, inNamespace(r.namespace), by(r.user), component(r.user))
					}
				}
				got, sum := b.holdings(), 0
				for _, n := range got {
					sum += n
				}
				if sum > limit {
					t.Errorf("%d series are pending", sum)
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

// component has the series of different users differ, as usual.
func component(name string) func(*occurrence.Occurrence) {
	return func(o *occurrence.Occurrence) { o.Event.Source.Component = name }
}

func names(n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprint("namespace-", i))
	}
	return out
}

// The Warnings of a storm of Events about Nodes outlive its Normals, whoever else
// reports.
func TestWarningsOfANodeStormSurvive(t *testing.T) {
	const nodes, warningsOfEach, normalsOfEach = 100, 2, 6
	for name, others := range map[string]int{"alone": 0, "beside other namespaces": 3, "beside one that floods": 1000} {
		t.Run(name, func(t *testing.T) {
			bubble(t, byNamespace{}, func(o *Options) { o.MaxPendingSeries = 400 }, func(t *testing.T, b *bench) {
				lost := 0
				count := func(o *occurrence.Occurrence) {
					o.Settled = func(occurrence.Settlement) { lost++ }
					o.Deferred = func() { o.Settled = nil }
				}
				for i := range others {
					namespace := "other"
					if others < 10 {
						namespace = fmt.Sprint("other-", i)
					}
					b.recordLater(i, time.Hour, inNamespace(namespace), by("system:serviceaccount:"+namespace+":a"), warning)
				}
				for n := range nodes {
					of := []func(*occurrence.Occurrence){inNamespace("default"), by(fmt.Sprint("system:node:", n)), component(fmt.Sprint("node-", n))}
					for i := range normalsOfEach {
						b.recordLater(i, time.Hour, of...)
					}
					for i := range warningsOfEach {
						b.recordLater(normalsOfEach+i, time.Hour, append(of, warning, count)...)
					}
				}
				kept := b.warningsIn("default")
				if kept != nodes*warningsOfEach || lost > 0 {
					t.Errorf("%d of %d Warnings are pending, %d refused", kept, nodes*warningsOfEach, lost)
				}
			})
		})
	}
}

func (b *bench) warningsIn(namespace string) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.pending {
		if a := p.counter; a.Namespace == namespace && a.EventType == "Warning" {
			n++
		}
	}
	return n
}

// What costs least goes first: repeats, Normals that wait, Warnings; and what a client
// was told will be written goes after all of them, and is counted apart.
func TestEvictionGoesByWhatItCosts(t *testing.T) {
	bubble(t, byNamespace{}, func(o *Options) { o.MaxPendingSeries = 6 }, func(t *testing.T, b *bench) {
		for _, i := range []int{2, 5} {
			b.record(i)
		}
		synctest.Wait()
		b.recordLater(0, time.Hour, warning)
		b.recordLater(1, time.Hour)
		b.recordLater(2, time.Hour) // a repeat
		b.recordLater(3, time.Hour, warning, acknowledge)
		b.recordLater(4, time.Hour, acknowledge)
		b.recordLater(5, time.Hour, acknowledge) // a repeat
		for i, want := range []string{"pod-2", "pod-1", "pod-0", "pod-5", "pod-4"} {
			before := b.objects("ns")
			b.recordLater(i, time.Hour, inNamespace(fmt.Sprint("other-", i)))
			after := b.objects("ns")
			if len(before) != len(after)+1 || after[want] || !before[want] {
				t.Errorf("%v are left of %v, want all but %s", after, before, want)
			}
		}
		wantDropped := map[occurrence.Reason]int64{occurrence.PendingFull: 3, occurrence.AcknowledgedEvicted: 2}
		if got := b.ledger.Totals().Dropped; !maps.Equal(got, wantDropped) {
			t.Errorf("dropped %v, want %v", got, wantDropped)
		}
	})
}

// objects are those that something is pending about.
func (b *bench) objects(namespace string) map[string]bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make(map[string]bool)
	for _, p := range b.pending {
		if p.counter.Namespace == namespace {
			out[p.counter.Object] = true
		}
	}
	return out
}

// stopAtOnce closes the sink, and gives up what is pending.
func (b *bench) stopAtOnce() {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Second)
	defer cancel()
	b.Close(ctx)
}

// Whoever adds to a series that somebody else has begun is charged for that, and what
// is evicted of the one leaves the other's alone.
func TestEachIsChargedForWhatItReports(t *testing.T) {
	const kib = 1 << 10
	bubble(t, byNamespace{}, func(o *Options) { o.MaxPendingBytes = 64 * kib }, func(t *testing.T, b *bench) {
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
		if got := b.holdings(); got[flowKey{"ns", "victim"}] != 11 || got[flowKey{"ns", "attacker"}] != 0 {
			t.Errorf("pending %v", got)
		}
	})
}

// Who waits for what is evicted is told, and may come again.
func TestWhoeverWaitsIsToldOfAnEviction(t *testing.T) {
	bubble(t, byNamespace{}, func(o *Options) { o.MaxPendingSeries = 2 }, func(t *testing.T, b *bench) {
		var ends []occurrence.Settlement
		for i := range 2 {
			b.recordLater(i, time.Hour, func(o *occurrence.Occurrence) {
				o.Settled = func(s occurrence.Settlement) { ends = append(ends, s) }
			})
		}
		b.recordLater(0, time.Hour, inNamespace("other"))
		want := occurrence.Settlement{Outcome: occurrence.Dropped, Reason: occurrence.PendingFull}
		if len(ends) != 1 || ends[0] != want {
			t.Errorf("told %+v, want %+v", ends, want)
		}
	})
}

// What was tried is evicted after what was not: it may have been written.
func TestWhatWasTriedIsEvictedLast(t *testing.T) {
	c := byObject{"pod-0": func(context.Context) error { return apierrors.NewInternalError(context.DeadlineExceeded) }}
	bubble(t, c, func(o *Options) { o.MaxPendingSeries, o.RetryBaseDelay, o.RetryMaxDelay = 3, time.Hour, time.Hour }, func(t *testing.T, b *bench) {
		b.recordLater(0, time.Second, warning)
		b.recordLater(1, time.Hour, warning)
		b.recordLater(2, time.Hour, warning)
		pass(2 * time.Second)
		b.recordLater(0, time.Hour, inNamespace("other"))
		if got := b.objects("ns"); !got["pod-0"] || !got["pod-1"] || got["pod-2"] {
			t.Errorf("%v are left", got)
		}
		b.stopAtOnce()
	})
}
