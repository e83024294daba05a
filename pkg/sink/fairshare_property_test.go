package sink

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/counter"
)

// census is what is pending, counted anew from the entries.
type census struct {
	limits *Options
	flows  map[flowKey]usage
	held   map[heldBy]bool
}

type heldBy struct {
	flow   flowKey
	series occurrence.Key
}

// census fails the test if what is accounted for differs from what is there, or is
// not evictable as it should be. Nothing may be settling.
func (b *bench) census() census {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	c := census{&b.options, make(map[flowKey]usage), make(map[heldBy]bool)}
	var deadline, recorded time.Time // the earliest ones
	for key, p := range b.pending {
		if at := p.deadlines.first(); deadline.IsZero() || at.Before(deadline) {
			deadline = at
		}
		if at := p.counter.Pending()[0].Oldest.Recorded; recorded.IsZero() || at.Before(recorded) {
			recorded = at
		}
		for i := range p.counter.Pending() {
			e := &p.counter.Pending()[i]
			by := heldBy{e.Owner.(*allocation).flow.key, key}
			u := usage{bytes: e.Bytes}
			if !c.held[by] {
				c.held[by], u.series = true, 1
			}
			c.flows[by.flow] = c.flows[by.flow].plus(u)
		}
		for _, h := range p.allocations {
			if at, ok := h.priorityNow(); h.listed != ok || ok && h.priority != at {
				b.t.Errorf("%+v is to be evicted as %v (%v), want %v (%v)", h.flow.key, h.priority, h.listed, at, ok)
			}
		}
	}
	for _, of := range []struct {
		ages ages
		want time.Time
	}{{b.byDeadline, deadline}, {b.byRecorded, recorded}} {
		if n := len(b.pending); len(of.ages) != n || n > 0 && !of.ages[0].since.Equal(of.want) {
			b.t.Errorf("the earliest of %d is %+v, want %v of %d", len(of.ages), of.ages, of.want, n)
		}
	}
	for key, f := range b.fair.flows {
		if c.flows[key] != f.usage {
			b.t.Errorf("%+v is accounted for %+v, want %+v", f.usage, key, c.flows[key])
		}
	}
	if len(c.flows) != len(b.fair.flows) || len(c.namespaces()) != len(b.fair.namespaces.byName) || len(c.tenants()) != len(b.fair.tenants.byName) {
		b.t.Errorf("%d flows, %d namespaces and %d tenants are active, want %v", len(b.fair.flows), len(b.fair.namespaces.byName), len(b.fair.tenants.byName), c.flows)
	}
	return c
}

func (c census) namespaces() map[string]usage {
	return c.by(func(k flowKey) string { return k.namespace })
}
func (c census) tenants() map[string]usage { return c.by(func(k flowKey) string { return k.tenant }) }

func (c census) by(name func(flowKey) string) map[string]usage {
	out := make(map[string]usage)
	for key, u := range c.flows {
		out[name(key)] = out[name(key)].plus(u)
	}
	return out
}

// levels are those of a flow's namespace and tenant, and what their share is.
type levels struct{ namespace, tenant, share float64 }

// of returns the levels of a flow if it took more than it does.
func (c census) of(f flowKey, more usage) levels {
	namespaces, tenants := c.namespaces(), c.tenants()
	namespaces[f.namespace] = namespaces[f.namespace].plus(more)
	tenants[f.tenant] = tenants[f.tenant].plus(more)
	return levels{
		namespaces[f.namespace].level(c.limits), tenants[f.tenant].level(c.limits),
		1 / float64(min(len(namespaces), len(tenants))),
	}
}

// part is an equal part of what a namespace or a tenant takes for each of its flows.
func (c census) part(of func(flowKey) string, f flowKey) float64 {
	flows := map[flowKey]bool{f: true}
	for key := range c.flows {
		if of(key) == of(f) {
			flows[key] = true
		}
	}
	return c.by(of)[of(f)].level(c.limits) / float64(len(flows))
}

// check compares what one occurrence has done with what it may do.
func (c census) check(t *testing.T, f flowKey, more usage, refused bool, after census) {
	t.Helper()
	namespace, tenant := func(k flowKey) string { return k.namespace }, func(k flowKey) string { return k.tenant }
	before, then := c.of(f, usage{}), c.of(f, more)
	own, ofFlow := c.flows[f].level(c.limits), c.flows[f].plus(more).level(c.limits)
	if refused && then.namespace <= then.share && then.tenant <= then.share {
		t.Errorf("%v is refused below its share: %+v", f, before)
	}
	if refused && then.tenant <= then.share && ofFlow <= c.part(namespace, f) ||
		refused && then.namespace <= then.share && ofFlow <= c.part(tenant, f) {
		t.Errorf("%v is refused below its part: %+v", f, before)
	}
	for by := range c.held {
		if after.held[by] || by.flow == f {
			continue
		}
		loser, its := c.of(by.flow, usage{}), c.flows[by.flow].level(c.limits)
		inNamespace, ofTenant := by.flow.namespace == f.namespace, by.flow.tenant == f.tenant
		switch {
		case loser.namespace <= then.share && loser.tenant <= then.share && !inNamespace && !ofTenant:
			t.Errorf("%v loses to %v, and is below its share: %+v", by.flow, f, loser)
		case before.namespace >= then.share && !inNamespace, before.tenant >= then.share && !ofTenant:
			t.Errorf("%v loses to %v, which has its share: %+v", by.flow, f, before)
		case before.namespace >= then.share && own >= c.part(namespace, f), before.tenant >= then.share && own >= c.part(tenant, f):
			t.Errorf("%v loses to %v, which has its part: %+v", by.flow, f, before)
		case before.namespace >= then.share && its <= c.part(namespace, f), before.tenant >= then.share && its <= c.part(tenant, f):
			t.Errorf("%v loses to %v, and is below its part", by.flow, f)
		}
	}
}

// Whatever is reported where, by whom and how: everything is accounted for, the
// limits hold, and nobody who is below its share loses anything to one above.
func TestNobodyBelowItsShareLosesToOneAbove(t *testing.T) {
	for seed := range uint64(100) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0))
			namespaces, users, objects := 1+r.IntN(6), 1+r.IntN(6), 1+r.IntN(12)
			limit := func(o *Options) {
				o.MaxPendingSeries = 1 + r.IntN(30)
				if r.IntN(2) == 0 {
					o.MaxPendingBytes = int64(1+r.IntN(30)) * 1500
				}
			}
			bubble(t, byNamespace{}, limit, func(t *testing.T, b *bench) {
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

// recordChecked adds an occurrence whose write waits, and checks what it has done.
func (b *bench) recordChecked(r *rand.Rand, f flowKey, object int) {
	b.t.Helper()
	refused, bytes := false, int64(0)
	of := []func(*occurrence.Occurrence){inNamespace(f.namespace), by(f.tenant), component(fmt.Sprint(r.IntN(2)))}
	if r.IntN(2) == 0 {
		of = append(of, warning)
	}
	size, awaited, acknowledged := r.IntN(1000), r.IntN(3) > 0, r.IntN(2) == 0
	before := b.census()
	b.recordLater(object, time.Hour, append(of, func(o *occurrence.Occurrence) {
		o.Event.Message = strings.Repeat("a", size)
		e, _ := counter.NewEntry(o, &occurrence.Target{Event: o.Event})
		bytes = e.Estimate()
		if awaited {
			o.Settled = func(occurrence.Settlement) { refused = true }
		}
		if awaited && acknowledged {
			o.Deferred = func() {}
		}
	})...)
	after := b.census()
	before.check(b.t, f, usage{series: 1, bytes: bytes}, refused, after)
	var sum usage
	for _, u := range after.flows {
		sum = sum.plus(u)
	}
	if o, held := &b.options, b.holds(); sum.series > o.MaxPendingSeries || sum.bytes >= o.MaxPendingBytes+2*bytes+2000 || sum.bytes != held.bytes {
		b.t.Errorf("%+v is pending, and held %+v", sum, held)
	}
}

// The accounts are right and the limits hold, too, while writes are made, fail, hang,
// and are given up.
func TestLimitsHoldWhileWritesAreMade(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			answers := []func(context.Context) error{
				answers, hangs,
				func(context.Context) error { return apierrors.NewInternalError(context.DeadlineExceeded) },
				func(context.Context) error { return apierrors.NewTooManyRequests("later", 1) },
				func(context.Context) error { time.Sleep(time.Second); return nil },
			}
			c := make(byNamespace)
			for i := range 5 {
				c[fmt.Sprint("namespace-", i)] = answers[r.IntN(len(answers))]
			}
			limit := func(o *Options) {
				o.MaxPendingSeries, o.Concurrency, o.MinConcurrency = 1+r.IntN(20), 1+r.IntN(4), 1
				o.RetryFor, o.RequestTimeout = time.Minute, 5*time.Second
			}
			bubble(t, c, limit, func(t *testing.T, b *bench) {
				for range 300 {
					f := flowKey{fmt.Sprint("namespace-", r.IntN(5)), fmt.Sprint("user-", r.IntN(3))}
					of := []func(*occurrence.Occurrence){inNamespace(f.namespace), by(f.tenant)}
					if r.IntN(2) == 0 {
						of = append(of, warning)
					}
					if r.IntN(2) == 0 {
						of = append(of, acknowledge)
					}
					b.recordLater(r.IntN(8), time.Duration(r.IntN(3))*time.Second, of...)
					pass(time.Duration(r.IntN(1000)) * time.Millisecond)
					if got := b.census(); len(got.held) > b.options.MaxPendingSeries {
						t.Errorf("%d series are pending", len(got.held))
					}
				}
			})
		})
	}
}
