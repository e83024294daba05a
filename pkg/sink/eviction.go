package sink

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/counter"
)

// What is pending is bounded (MaxPendingSeries, MaxPendingBytes). While there is room,
// anybody may use it. When there is none, an occurrence evicts
//
//   - of whoever is furthest above its share, if its own namespace and its own tenant
//     are below theirs;
//   - within its namespace if that has its share, and within its tenant if that has
//     its share: of the flow that takes most, if its own flow takes less than an equal
//     part;
//   - else of its own flow only, and only what costs less to lose than itself.
//
// If there is nothing of that, the occurrence is refused. Of a flow, what costs least
// to lose is evicted first: see priority.

// priority orders what a flow has pending by how soon it is evicted.
type priority uint8

const (
	repeats         priority = iota // Normal, of a stored Event, so that only its count stays behind
	deferredNormals                 // whose write is not due
	dueNormals                      // that wait for a worker
	warnings
	// acknowledged is added for what a client was told will be written.
	acknowledged
	priorities = 2 * acknowledged
)

var (
	all = []priority{repeats, deferredNormals, dueNormals, warnings,
		acknowledged + repeats, acknowledged + deferredNormals, acknowledged + dueNormals, acknowledged + warnings}
	// What an occurrence may evict of its own flow.
	forWarning = []priority{repeats, deferredNormals, dueNormals,
		acknowledged + repeats, acknowledged + deferredNormals, acknowledged + dueNormals}
	forUrgentNormal = []priority{repeats, deferredNormals}
	forNormal       = []priority{repeats}
)

// priorityNow is when a holding is evicted, if that is possible.
func (h *holding) priorityNow() (at priority, ok bool) {
	owed := h.series
	if owed.over || owed.job.Running() {
		return 0, false
	}
	switch {
	case owed.counter.EventType == corev1.EventTypeWarning:
		at = warnings
	case owed.counter.IsStored():
		at = repeats
	case owed.deferred:
		at = deferredNormals
	default:
		at = dueNormals
	}
	if h.acknowledged {
		at += acknowledged
	}
	return at, true
}

// updateEvictable puts what is pending of a series where it belongs among what may
// be evicted. A series in work may not. The mutex must be held.
func (s *Sink) updateEvictable(owed *series) {
	for _, h := range owed.holdings {
		s.fair.update(h)
	}
}

func (s *fairShare) update(h *holding) {
	if at, ok := h.priorityNow(); ok {
		s.list(h, at)
		return
	}
	h.worked = true
	s.unlist(h)
}

// full tells whether there is no room for an occurrence that a flow reports, which
// holds nothing of the series if the holding is nil. The mutex must be held.
func (s *Sink) full(h *holding) bool {
	return s.held.bytes >= s.options.MaxPendingBytes || h == nil && s.fair.series >= s.options.MaxPendingSeries
}

// takesNothing tells whether a series can hold one more occurrence, due at a time,
// without taking more memory: one that becomes part of what is owed already, and
// says no more. The mutex must be held.
func (s *Sink) takesNothing(h *holding, e *counter.Entry, c counter.Claim, now, at time.Time) bool {
	if h == nil {
		return false
	}
	owed := h.series
	// What is asked is what Add does.
	sequence := s.sequence + 1
	deadlines := slices.Clone(owed.deadlines).add(now, at, sequence, s.options.RetryFor/deadlineGrains)
	e.Owner = h
	return owed.counter.Absorbs(sequence, deadlines.sealed(), *e, c)
}

// newcomer is an occurrence that there is no room for.
type newcomer struct {
	flow    *flow
	holding *holding   // of its flow in its series, nil if there is none
	usage   usage      // about what it will take
	own     []priority // what it may evict of its own flow
}

// newcomer describes an occurrence of a target.
func (s *Sink) newcomer(t *occurrence.Target, h *holding, e *counter.Entry, urgent bool) newcomer {
	n := newcomer{holding: h, usage: usage{bytes: e.Estimate()}}
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

// isRepeat tells whether the Event of a series is known to be stored.
func (s *Sink) isRepeat(t *occurrence.Target) bool {
	if owed := s.pending[t.Key]; owed != nil {
		return owed.counter.IsStored()
	}
	_, ok := s.idle.Peek(t.Key)
	return ok
}

// makeRoom evicts until there is room for an occurrence of a flow, and returns what
// has settled by that. It returns false if the occurrence is to be refused. The mutex
// must be held.
func (s *Sink) makeRoom(f flowKey, n newcomer, now time.Time) (out []counter.Settled, ok bool) {
	n.flow = s.fair.flow(f)
	defer s.fair.retire(n.flow)
	if n.holding != nil { // which is not evicted for itself
		s.fair.unlist(n.holding)
		defer s.fair.update(n.holding)
	}
	next := s.fair.victims(n)
	for s.full(n.holding) {
		victim := next()
		if victim == nil {
			return out, false
		}
		out = append(out, s.evict(victim, now)...)
	}
	return out, true
}

// victims returns what tells the next holding that is to make room for an occurrence,
// nil if none is.
func (s *fairShare) victims(n newcomer) func() *holding {
	f := n.flow
	share := 1 / float64(min(len(s.namespaces.byName), len(s.tenants.byName)))
	from := func() *flow { return nil }
	switch namespaceIsAt, tenantIsAt := s.isAt(f.namespace, share, n.usage), s.isAt(f.tenant, share, n.usage); {
	case namespaceIsAt && tenantIsAt:
	case namespaceIsAt:
		from = s.within(f.namespace, n)
	case tenantIsAt:
		from = s.within(f.tenant, n)
	default:
		from = s.anywhere(n, share)
	}
	return func() *holding {
		if other := from(); other != nil {
			return other.last(all)
		}
		return f.last(n.own)
	}
}

// isAt tells whether a party has its share, and would have more than that. One that
// has nothing is below its share, however much the occurrence takes.
func (s *fairShare) isAt(p *party, share float64, more usage) bool {
	return p.usage != (usage{}) && p.plus(more).level(s.limits) > share
}

// anywhere finds the flow that takes most of the namespace or the tenant that is
// furthest above its share. That one has more than the occurrence's will have, so that
// two do not evict each other in turn.
func (s *fairShare) anywhere(n newcomer, share float64) func() *flow {
	above := max(share,
		n.flow.namespace.plus(n.usage).level(s.limits),
		n.flow.tenant.plus(n.usage).level(s.limits))
	return func() *flow {
		found := furthest(above, s.namespaces.ranking.first(), s.tenants.ranking.first())
		if found == nil {
			return nil
		}
		return found.party.ranking.first().flow
	}
}

// within finds the flow of a party that takes most, if that is more than an equal part
// of what the party takes, and the occurrence's own takes less.
func (s *fairShare) within(p *party, n newcomer) func() *flow {
	part := p.level(s.limits) / float64(p.flows)
	if n.flow.level(s.limits) >= part {
		return func() *flow { return nil }
	}
	above := max(part, n.flow.plus(n.usage).level(s.limits))
	return func() *flow {
		found := furthest(above, p.ranking.first())
		if found == nil {
			return nil
		}
		return found.flow
	}
}

// furthest is who is furthest above a level, nil if nobody is.
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

// evict settles what a flow has pending of a series. The mutex must be held.
func (s *Sink) evict(h *holding, now time.Time) []counter.Settled {
	s.fair.unlist(h)
	owed := h.series
	out := owed.counter.Evict(h)
	if s.release(owed) {
		s.scheduler.Remove(&owed.job, now)
	} else {
		s.arrange(owed, now) // what is left may be due at another time
	}
	for i := range out { // it is reported later, and takes no room by then
		s.held.bytes -= out[i].Bytes
		s.fair.settle(out[i].Entry)
		out[i].Bytes, out[i].Owner = 0, nil
	}
	return out
}
