package sink

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/eventd/eventd/internal/minheap"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/counter"
	"github.com/eventd/eventd/test/seeds"
)

// census is what is pending, counted anew from the entries.
type census struct {
	limits  *Options
	flows   map[flowKey]usage
	pending map[seriesOfFlow]bool
}

type seriesOfFlow struct {
	flow   flowKey
	series occurrence.Key
}

// census fails the test if the usage or the ages differ from what is pending, or if an
// allocation is not evictable as it should be. Nothing may be settling.
func (b *bench) census() census {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	c := census{&b.options, make(map[flowKey]usage), make(map[seriesOfFlow]bool)}
	var deadline, recorded time.Time // the earliest ones
	deferred, now := 0, time.Now()
	for key, p := range b.pending {
		entries := p.counter.Pending()
		if p.deferred {
			deferred++
		} else if p.deadlines.first().After(now) {
			b.t.Errorf("what is due in %v is not deferred", p.deadlines.first().Sub(now))
		}
		if _, idle := b.idle.Peek(key); idle {
			b.t.Error("what is pending is idle as well")
		}
		if at := p.deadlines.first(); deadline.IsZero() || at.Before(deadline) {
			deadline = at
		}
		if at := entries[0].Oldest.Recorded; recorded.IsZero() || at.Before(recorded) {
			recorded = at
		}
		for i := range entries {
			of := seriesOfFlow{entries[i].Owner.(*allocation).flow.key, key}
			u := usage{bytes: entries[i].Bytes}
			if !c.pending[of] {
				c.pending[of], u.series = true, 1
			}
			c.flows[of.flow] = c.flows[of.flow].plus(u)
		}
		for _, h := range p.allocations {
			if at, ok := h.priorityNow(); h.listed != ok || ok && h.priority != at {
				b.t.Errorf("%+v is to be evicted as %v (%v), want %v (%v)", h.flow.key, h.priority, h.listed, at, ok)
			}
		}
	}
	b.wantEarliest(&b.byDeadline, deadline)
	b.wantEarliest(&b.byRecorded, recorded)
	if b.deferred != deferred {
		b.t.Errorf("%d are deferred, want %d", b.deferred, deferred)
	}
	got := make(map[flowKey]usage)
	for key, f := range b.fair.flows {
		got[key] = f.usage
		none := minheap.Place{}
		if listed := f.listed > 0; listed != (f.inNamespace.Place != none) || listed != (f.inTenant.Place != none) {
			b.t.Errorf("%d of %+v are evictable, places %v and %v", f.listed, key, f.inNamespace.Place, f.inTenant.Place)
		}
	}
	if !maps.Equal(got, c.flows) {
		b.t.Errorf("usage %+v, want %+v", got, c.flows)
	}
	n, m := len(b.fair.namespaces.byName), len(b.fair.tenants.byName)
	if len(c.by(namespaceOf)) != n || len(c.by(tenantOf)) != m {
		b.t.Errorf("%d namespaces and %d tenants are active, want those of %v", n, m, c.flows)
	}
	return c
}

func (b *bench) wantEarliest(a *ages, want time.Time) {
	b.t.Helper()
	if n := len(b.pending); a.Len() != n || n > 0 && !a.First().since.Equal(want) {
		b.t.Errorf("the earliest of %d is %+v, want %v of %d", a.Len(), a.First(), want, n)
	}
}

func namespaceOf(f flowKey) string { return f.namespace }
func tenantOf(f flowKey) string    { return f.tenant }

// by sums up the usage of namespaces or tenants.
func (c census) by(party func(flowKey) string) map[string]usage {
	out := make(map[string]usage)
	for key, u := range c.flows {
		out[party(key)] = out[party(key)].plus(u)
	}
	return out
}

// levels are those of a flow's namespace and tenant, and what their share is.
type levels struct{ namespace, tenant, share float64 }

// of returns the levels of a flow if it used more than it does.
func (c census) of(f flowKey, more usage) levels {
	namespaces, tenants := c.by(namespaceOf), c.by(tenantOf)
	namespaces[f.namespace] = namespaces[f.namespace].plus(more)
	tenants[f.tenant] = tenants[f.tenant].plus(more)
	return levels{
		namespaces[f.namespace].level(c.limits), tenants[f.tenant].level(c.limits),
		1 / float64(min(len(namespaces), len(tenants))),
	}
}

// part is an equal part, for each of its flows, of what a flow's namespace or tenant uses.
func (c census) part(party func(flowKey) string, f flowKey) float64 {
	flows := map[flowKey]bool{f: true}
	for key := range c.flows {
		if party(key) == party(f) {
			flows[key] = true
		}
	}
	return c.by(party)[party(f)].level(c.limits) / float64(len(flows))
}

// check compares what one occurrence of a flow has done with what it may do.
func (c census) check(t testing.TB, f flowKey, more usage, refused bool, after census) {
	t.Helper()
	before, then := c.of(f, usage{}), c.of(f, more)
	own, ofFlow := c.flows[f].level(c.limits), c.flows[f].plus(more).level(c.limits)
	inNamespace, ofTenant := c.part(namespaceOf, f), c.part(tenantOf, f)
	switch {
	case !refused:
	case then.namespace <= then.share && then.tenant <= then.share:
		t.Errorf("%v is refused below its share: %+v", f, before)
	case then.tenant <= then.share && ofFlow <= inNamespace, then.namespace <= then.share && ofFlow <= ofTenant:
		t.Errorf("%v is refused below its part: %+v", f, before)
	}
	for of := range c.pending {
		if after.pending[of] || of.flow == f {
			continue
		}
		loser, its := c.of(of.flow, usage{}), c.flows[of.flow].level(c.limits)
		sameNamespace, sameTenant := of.flow.namespace == f.namespace, of.flow.tenant == f.tenant
		switch {
		case loser.namespace <= then.share && loser.tenant <= then.share && !sameNamespace && !sameTenant:
			t.Errorf("%v loses to %v, and is below its share: %+v", of.flow, f, loser)
		case before.namespace >= then.share && !sameNamespace, before.tenant >= then.share && !sameTenant:
			t.Errorf("%v loses to %v, which has its share: %+v", of.flow, f, before)
		case before.namespace >= then.share && own >= inNamespace, before.tenant >= then.share && own >= ofTenant:
			t.Errorf("%v loses to %v, which has its part: %+v", of.flow, f, before)
		case before.namespace >= then.share && its <= inNamespace, before.tenant >= then.share && its <= ofTenant:
			t.Errorf("%v loses to %v, and is below its part", of.flow, f)
		}
	}
}

// maybe returns a change, or half of the time one that changes nothing.
func maybe(r *rand.Rand, c change) change {
	if r.IntN(2) == 0 {
		return c
	}
	return normal
}

// Whatever is reported where, by whom and how: the usage is right, the limits hold, and
// nobody below its share loses anything to one above.
func TestNobodyBelowItsShareLosesToOneAbove(t *testing.T) {
	for seed := range seeds.Of(100) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0))
			namespaces, users, objects := 1+r.IntN(6), 1+r.IntN(6), 1+r.IntN(12)
			limit := func(o *Options) {
				o.MaxPendingSeries = 1 + r.IntN(30)
				if r.IntN(2) == 0 {
					o.MaxPendingBytes = int64(1+r.IntN(30)) * 1500
				}
			}
			bubble(t, &fake{}, limit, func(t *testing.T, b *bench) {
				for range 200 {
					f := flowKey{fmt.Sprint("namespace-", r.IntN(namespaces)), fmt.Sprint("user-", r.IntN(users))}
					if r.IntN(3) == 0 {
						f = flowKey{"namespace-0", "user-0"} // which floods
					}
					b.recordChecked(r, f, r.IntN(objects))
				}
			})
		})
	}
}

// recordChecked adds an occurrence whose write is deferred, and checks what it has done.
func (b *bench) recordChecked(r *rand.Rand, f flowKey, object int) {
	b.t.Helper()
	refused, bytes := false, int64(0)
	size, mayAcknowledge := r.IntN(1000), maybe(r, func(o *occurrence.Occurrence) { o.Deferred = func() {} })
	reported := func(o *occurrence.Occurrence) {
		o.Event.Message = strings.Repeat("a", size)
		e, _ := counter.NewEntry(o, &occurrence.Target{Event: o.Event})
		bytes = e.Estimate()
	}
	changes := []change{inNamespace(f.namespace), by(f.tenant), component(fmt.Sprint(r.IntN(2))), maybe(r, warning), reported}
	if r.IntN(3) > 0 {
		changes = append(changes, onSettled(func(occurrence.Settlement) { refused = true }), mayAcknowledge)
	}
	before := b.census()
	b.recordLater(object, time.Hour, changes...)
	after := b.census()
	before.check(b.t, f, usage{series: 1, bytes: bytes}, refused, after)
	var sum usage
	for _, u := range after.flows {
		sum = sum.plus(u)
	}
	if o, total := &b.options, b.holds(); sum.series > o.MaxPendingSeries || sum.bytes >= o.MaxPendingBytes+2*bytes+2000 || sum.bytes != total.bytes {
		b.t.Errorf("%+v is pending, and the total is %+v", sum, total)
	}
}

// The usage is right and the limits hold, too, while writes are made, fail, hang,
// and are dropped.
func TestLimitsHoldWhileWritesAreMade(t *testing.T) {
	for seed := range seeds.Of(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			kinds := []answer{
				fail(nil), hang, fail(errNoAnswer), fail(apierrors.NewTooManyRequests("later", 1)),
				func(context.Context, *call) error { time.Sleep(time.Second); return nil },
			}
			answers := make(map[string]answer) // by namespace
			for i := range 5 {
				answers[fmt.Sprint("namespace-", i)] = kinds[r.IntN(len(kinds))]
			}
			f := &fake{answer: func(ctx context.Context, c *call) error { return answers[c.namespace](ctx, c) }}
			limit := func(o *Options) {
				o.MaxPendingSeries, o.Concurrency, o.MinConcurrency = 1+r.IntN(20), 1+r.IntN(4), 1
				o.RetryFor, o.RequestTimeout = time.Minute, 5*time.Second
			}
			bubble(t, f, limit, func(t *testing.T, b *bench) {
				for range 300 {
					namespace, user := fmt.Sprint("namespace-", r.IntN(5)), fmt.Sprint("user-", r.IntN(3))
					b.recordLater(r.IntN(8), time.Duration(r.IntN(3))*time.Second,
						inNamespace(namespace), by(user), maybe(r, warning), maybe(r, acknowledge))
					pass(time.Duration(r.IntN(1000)) * time.Millisecond)
					if n := len(b.census().pending); n > b.options.MaxPendingSeries {
						t.Errorf("%d series are pending", n)
					}
				}
			})
		})
	}
}
