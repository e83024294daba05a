package sink

import (
	"github.com/eventd/eventd/internal/minheap"
	"github.com/eventd/eventd/pkg/sink/internal/counter"
)

// What is pending is charged to the namespace of the Event and to the tenant of the user who
// reported it (occurrence.TenantOf). So neither a namespace whose requests hang nor a tenant
// that floods uses the memory of others. A flow is what one tenant reports in one namespace.
//
// The share of a namespace, and of a tenant in all namespaces together, is the limit
// divided by the number of active namespaces or of active tenants, whichever is less.
// So a tenant that writes in many namespaces has one share, and a namespace in which
// many tenants write has one share. A recorder in this process has no user: there
// is one tenant then, and its namespaces have equal shares of the limit.

// fairShare is the usage of namespaces, tenants and flows. The sink's mutex guards it. Each
// operation takes O(log n) for n flows.
type fairShare struct {
	limits     *Options
	series     int // of all flows
	flows      map[flowKey]*flow
	namespaces parties
	tenants    parties
}

// usage is what is pending of a flow or a party. Each series counts once for each flow that
// has reported it.
type usage struct {
	series int
	bytes  int64
}

func (u usage) plus(other usage) usage { return usage{u.series + other.series, u.bytes + other.bytes} }

// level is the usage relative to the limits: the higher of the two, as in dominant resource
// fairness.
func (u usage) level(limits *Options) float64 {
	return max(float64(u.series)/float64(limits.MaxPendingSeries), float64(u.bytes)/float64(limits.MaxPendingBytes))
}

// parties are the active namespaces, or the active tenants.
type parties struct {
	limits  *Options
	byName  map[string]*party
	ranking ranking // those with evictable allocations
}

// party is a namespace or a tenant.
type party struct {
	usage
	of      *parties
	name    string
	flows   int     // that are active
	ranking ranking // of its flows with evictable allocations
	rank    rank
}

type flowKey struct{ namespace, tenant string }

// flow is what one tenant reports in one namespace.
type flow struct {
	usage
	key               flowKey
	references        int // its allocations, and an occurrence for which something is evicted
	namespace, tenant *party
	inNamespace       rank
	inTenant          rank
	// evictable are the allocations that may be evicted, the last one first. Each is a ring, of
	// which this is the first.
	evictable [priorities]*allocation
	listed    int
}

// allocation is what a flow has pending of one series.
type allocation struct {
	flow   *flow
	series *pendingSeries
	// entries are those that are not reported to the ledger, and size the sum of their Sizes.
	entries, size int
	// acknowledged: one of the entries was answered 202.
	acknowledged bool
	tried        bool // a write of it may have been tried

	listed         bool // in the ring of its flow for the priority
	priority       priority
	next, previous *allocation
}

func newFairShare(limits *Options) *fairShare {
	return &fairShare{
		limits:     limits,
		flows:      make(map[flowKey]*flow),
		namespaces: parties{limits: limits, byName: make(map[string]*party)},
		tenants:    parties{limits: limits, byName: make(map[string]*party)},
	}
}

// flow returns the flow of a tenant in a namespace. It is active until retire is called for
// each call of flow.
func (s *fairShare) flow(key flowKey) *flow {
	f := s.flows[key]
	if f == nil {
		f = &flow{key: key, namespace: s.namespaces.enter(key.namespace), tenant: s.tenants.enter(key.tenant)}
		f.inNamespace = rank{limits: s.limits, usage: &f.usage, flow: f}
		f.inTenant = f.inNamespace
		s.flows[key] = f
	}
	f.references++
	return f
}

func (s *fairShare) retire(f *flow) {
	if f.references--; f.references == 0 {
		f.namespace.leave()
		f.tenant.leave()
		delete(s.flows, f.key)
	}
}

func (p *parties) enter(name string) *party {
	of := p.byName[name]
	if of == nil {
		of = &party{of: p, name: name}
		of.rank = rank{limits: p.limits, usage: &of.usage, party: of}
		p.byName[name] = of
	}
	of.flows++
	return of
}

func (p *party) leave() {
	if p.flows--; p.flows == 0 {
		delete(p.of.byName, p.name)
	}
}

// allocate adds a series to a flow.
func (s *fairShare) allocate(key flowKey, p *pendingSeries) *allocation {
	f := s.flow(key)
	h := &allocation{flow: f, series: p}
	p.allocations = append(p.allocations, h)
	s.charge(f, usage{series: 1})
	return h
}

// settle removes an entry that has settled.
func (s *fairShare) settle(e *counter.Entry) {
	h := e.Owner.(*allocation)
	h.entries--
	h.size -= e.Size()
	if h.entries > 0 {
		s.charge(h.flow, usage{bytes: -e.Bytes})
		return
	}
	s.unlist(h)
	h.series.drop(h)
	s.charge(h.flow, usage{series: -1, bytes: -e.Bytes})
	s.retire(h.flow)
}

// charge adds to the usage of a flow.
func (s *fairShare) charge(f *flow, u usage) {
	if u == (usage{}) {
		return
	}
	s.series += u.series
	f.usage, f.namespace.usage, f.tenant.usage = f.plus(u), f.namespace.plus(u), f.tenant.plus(u)
	s.rank(f)
}

// rank updates the positions of a flow and its parties in the rankings.
func (s *fairShare) rank(f *flow) {
	f.namespace.update(&f.inNamespace)
	f.tenant.update(&f.inTenant)
}

func (p *party) update(r *rank) {
	p.ranking.update(r, r.flow.listed > 0)
	p.of.ranking.update(&p.rank, p.ranking.Len() > 0)
}

// list makes an allocation evictable with a priority. Those that were in work are evicted after
// those that were not.
func (s *fairShare) list(h *allocation, at priority) {
	if h.listed && h.priority == at {
		return
	}
	f := h.flow
	f.unlink(h)
	f.link(h, at)
	if h.tried {
		f.evictable[at] = h
	}
	if f.listed == 1 {
		s.rank(f)
	}
}

// unlist makes an allocation not evictable.
func (s *fairShare) unlist(h *allocation) {
	if !h.listed {
		return
	}
	if h.flow.unlink(h); h.flow.listed == 0 {
		s.rank(h.flow)
	}
}

func (f *flow) link(h *allocation, at priority) {
	h.listed, h.priority = true, at
	f.listed++
	first := f.evictable[at]
	if first == nil {
		h.next, h.previous = h, h
		f.evictable[at] = h
		return
	}
	h.next, h.previous = first, first.previous
	h.previous.next, h.next.previous = h, h
}

func (f *flow) unlink(h *allocation) {
	if !h.listed {
		return
	}
	f.listed--
	switch {
	case h.next == h:
		f.evictable[h.priority] = nil
	case f.evictable[h.priority] == h:
		f.evictable[h.priority] = h.next
	}
	h.previous.next, h.next.previous = h.next, h.previous
	h.listed, h.next, h.previous = false, nil, nil
}

// last returns the last allocation of the first of some priorities that has any.
func (f *flow) last(of []priority) *allocation {
	for _, at := range of {
		if first := f.evictable[at]; first != nil {
			return first.previous
		}
	}
	return nil
}

// rank is the position of a flow or a party in a ranking.
type rank struct {
	minheap.Place
	limits *Options
	usage  *usage
	flow   *flow
	party  *party
}

func (r *rank) level() float64 { return r.usage.level(r.limits) }

// Before implements minheap.Element. The highest usage is first.
func (r *rank) Before(other *rank) bool { return r.level() > other.level() }

// ranking has those with evictable allocations.
type ranking struct{ minheap.Heap[*rank] }

// update adds, removes or moves an element.
func (r *ranking) update(m *rank, in bool) {
	if in {
		r.Fix(m)
	} else {
		r.Remove(m)
	}
}
