package sink

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/counter"
)

// What is pending is bounded (MaxPendingSeries, MaxPendingBytes). Below the limits, anybody may
// use them. At a limit, an occurrence evicts
//
//   - of whoever is furthest above its share, if its own namespace and its own tenant are
//     below theirs;
//   - within its namespace if that has its share, and within its tenant if that has its share:
//     of the flow with the highest usage, if its own flow has less than an equal part;
//   - otherwise of its own flow only, and only what has a lower priority.
//
// If there is nothing to evict, the occurrence is dropped. Of a flow, what has the lowest
// priority is evicted first.

// priority is the order in which the allocations of a flow are evicted.
type priority uint8

const (
	repeats         priority = iota // Normal, of a stored Event, so that only its count is too low
	deferredNormals                 // whose deadline lies in the future
	queuedNormals                   // that wait for a worker
	warnings
	// acknowledged is added if a client was told that the occurrence will be written.
	acknowledged
	priorities = 2 * acknowledged
)

var (
	all = []priority{repeats, deferredNormals, queuedNormals, warnings,
		acknowledged + repeats, acknowledged + deferredNormals, acknowledged + queuedNormals, acknowledged + warnings}
	// What an occurrence may evict of its own flow.
	forWarning = []priority{repeats, deferredNormals, queuedNormals,
		acknowledged + repeats, acknowledged + deferredNormals, acknowledged + queuedNormals}
	forUrgentNormal = []priority{repeats, deferredNormals}
	forNormal       = []priority{repeats}
)

// priorityNow returns the priority of an allocation; ok is false if it may not be evicted.
func (h *allocation) priorityNow() (at priority, ok bool) {
	p := h.series
	if p.over || p.job.Running() {
		return 0, false
	}
	switch {
	case p.counter.EventType == corev1.EventTypeWarning:
		at = warnings
	case p.counter.IsStored():
		at = repeats
	case p.deferred:
		at = deferredNormals
	default:
		at = queuedNormals
	}
	if h.acknowledged {
		at += acknowledged
	}
	return at, true
}

// updateEvictable updates which allocations of a series may be evicted. None may while the
// series is in work. The mutex must be held.
func (s *Sink) updateEvictable(p *pendingSeries) {
	for _, h := range p.allocations {
		s.fair.update(h)
	}
}

func (s *fairShare) update(h *allocation) {
	if at, ok := h.priorityNow(); ok {
		s.list(h, at)
		return
	}
	h.tried = true
	s.unlist(h)
}

// isFull reports whether a limit is reached for an occurrence of a flow, whose allocation in
// the series is nil if it has none. The mutex must be held.
func (s *Sink) isFull(h *allocation) bool {
	return s.total.bytes >= s.options.MaxPendingBytes || h == nil && s.fair.series >= s.options.MaxPendingSeries
}

// absorbs reports whether an occurrence with a deadline needs no more memory, since it becomes
// part of the newest entry. The mutex must be held.
func (s *Sink) absorbs(h *allocation, e *counter.Entry, c counter.Claim, now, at time.Time) bool {
	if h == nil {
		return false
	}
	e.Owner = h
	return h.series.counter.Absorbs(s.sequence+1, s.sealedAfter(h.series, now, at), *e, c)
}

// sealedAfter returns up to which sequence entries of a series are sealed after an occurrence with
// a deadline was added. The mutex must be held.
func (s *Sink) sealedAfter(p *pendingSeries, now, at time.Time) uint64 {
	return slices.Clone(p.deadlines).add(now, at, s.sequence+1, s.options.RetryFor/deadlineGrains).sealed()
}

// incoming is an occurrence for which something must be evicted.
type incoming struct {
	flow       *flow
	allocation *allocation // of its flow in its series, nil if there is none
	usage      usage       // about what it will add
	own        []priority  // what it may evict of its own flow
}

// incoming describes an occurrence of a target.
func (s *Sink) incoming(t *occurrence.Target, h *allocation, e *counter.Entry, urgent bool) incoming {
	n := incoming{allocation: h, usage: usage{bytes: e.Estimate()}}
	if h == nil {
		n.usage.series = 1
	}
	switch {
	case t.Event.Type == corev1.EventTypeWarning:
		n.own = forWarning
	case s.isRepeat(t):
	case urgent:
		n.own = forUrgentNormal
	default:
		n.own = forNormal
	}
	return n
}

// isRepeat reports whether the Event of a series is known to be stored.
func (s *Sink) isRepeat(t *occurrence.Target) bool {
	if p := s.pending[t.Key]; p != nil {
		return p.counter.IsStored()
	}
	_, stored := s.idle.Peek(t.Key)
	return stored
}

// evictFor evicts until an occurrence of a flow fits, and returns what has settled. It returns
// false if the occurrence is to be dropped. The mutex must be held.
func (s *Sink) evictFor(f flowKey, n incoming, now time.Time) (out []counter.Settled, ok bool) {
	n.flow = s.fair.flow(f)
	defer s.fair.retire(n.flow)
	if n.allocation != nil { // it is not evicted for itself
		s.fair.unlist(n.allocation)
		defer s.fair.update(n.allocation)
	}
	next := s.fair.victims(n)
	for s.isFull(n.allocation) {
		victim := next()
		if victim == nil {
			return out, false
		}
		out = append(out, s.evict(victim, now)...)
	}
	return out, true
}

// victims returns a function that returns the next allocation to evict, nil if there is none.
func (s *fairShare) victims(n incoming) func() *allocation {
	f := n.flow
	share := 1 / float64(min(len(s.namespaces.byName), len(s.tenants.byName)))
	from := func() *flow { return nil }
	switch namespaceHas, tenantHas := s.hasShare(f.namespace, share, n.usage), s.hasShare(f.tenant, share, n.usage); {
	case namespaceHas && tenantHas:
	case namespaceHas:
		from = s.within(f.namespace, n)
	case tenantHas:
		from = s.within(f.tenant, n)
	default:
		from = s.anywhere(n, share)
	}
	return func() *allocation {
		if other := from(); other != nil {
			return other.last(all)
		}
		return f.last(n.own)
	}
}

// hasShare reports whether a party would have more than its share. One that has nothing is
// below its share, however large the occurrence is.
func (s *fairShare) hasShare(p *party, share float64, more usage) bool {
	return p.usage != (usage{}) && p.plus(more).level(s.limits) > share
}

// anywhere finds the flow with the highest usage, of the namespace or the tenant that is
// furthest above its share. That one has more than the flow of the occurrence will have, so
// that two flows do not evict each other in turn.
func (s *fairShare) anywhere(n incoming, share float64) func() *flow {
	above := max(share,
		n.flow.namespace.plus(n.usage).level(s.limits),
		n.flow.tenant.plus(n.usage).level(s.limits))
	return func() *flow {
		found := furthest(above, s.namespaces.ranking.First(), s.tenants.ranking.First())
		if found == nil {
			return nil
		}
		return found.party.ranking.First().flow
	}
}

// within finds the flow with the highest usage of a party, if that is more than an equal part
// of the usage of the party and the flow of the occurrence has less.
func (s *fairShare) within(p *party, n incoming) func() *flow {
	part := p.level(s.limits) / float64(p.flows)
	if n.flow.level(s.limits) >= part {
		return func() *flow { return nil }
	}
	above := max(part, n.flow.plus(n.usage).level(s.limits))
	return func() *flow {
		found := furthest(above, p.ranking.First())
		if found == nil {
			return nil
		}
		return found.flow
	}
}

// furthest returns who is furthest above a level, nil if nobody is.
func furthest(above float64, of ...*rank) (found *rank) {
	for _, r := range of {
		if r == nil {
			continue
		}
		if level := r.level(); level > above {
			found, above = r, level
		}
	}
	return found
}

// evict settles an allocation. The mutex must be held.
func (s *Sink) evict(h *allocation, now time.Time) []counter.Settled {
	s.fair.unlist(h)
	p := h.series
	out := p.counter.Evict(h)
	if s.release(p) {
		s.scheduler.Remove(&p.job, now)
	} else {
		s.reschedule(p, now) // the rest may have another deadline
	}
	for i := range out { // it is reported later, but uses no memory any more
		s.total.bytes -= out[i].Bytes
		s.fair.settle(out[i].Entry)
		out[i].Bytes, out[i].Owner = 0, nil
	}
	return out
}
