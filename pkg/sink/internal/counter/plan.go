package counter

import (
	"math"

	"github.com/eventd/eventd/pkg/occurrence"
)

// plan is what a write changes.
type plan struct {
	base         *observation // nil to create
	count        int64
	added        int64
	contributors contributors
	upTo         uint64 // the last sequence included
}

// isTooMany tells whether the object's count cannot take what is added: then it goes
// on with another Event, and somebody who has made one with the highest count loses
// nobody anything.
func (p *plan) isTooMany() bool { return p.base != nil && p.base.count+p.added > math.MaxInt32 }

// maxBatch bounds the entries and claims that one write includes, and so the
// time that is spent on planning and settling it: some milliseconds, at 0.1 µs
// for a claim and 0.2 µs for an entry.
const MaxBatch = 1 << 15

// batch is what the next write includes. Where no annotation tells which of
// several writes has taken effect, there is one at a time; so there is where the
// object's count may have no room for what has come since.
func (a *Counter) batch() []Entry {
	n, size := 0, 0
	repeats := len(a.pending) > 0 && a.pending[0].Sequence <= a.inDoubt && (a.isExclusive() || a.isNearlyFull())
	for ; n < len(a.pending) && !(repeats && a.pending[n].Sequence > a.inDoubt); n++ {
		if size += a.pending[n].size(); size > MaxBatch {
			break
		}
	}
	return a.pending[:n]
}

// isNearlyFull tells whether the object's count may have no room for all that is
// pending.
func (a *Counter) isNearlyFull() bool {
	return a.observed != nil && a.observed.count > math.MaxInt32-a.weight()
}

// plan includes the whole batch.
func (a *Counter) plan(batch []Entry) plan {
	p := plan{base: a.observed}
	if p.base == nil {
		p.contributors.creator = a.instance
	} else {
		p.count, p.contributors = p.base.count, p.base.contributors
	}
	clients := append(make([]contribution, 0, maxClients+1), p.contributors.clients...)
	for i := range batch {
		e := &batch[i]
		e.limited = a.limits(e, &batch[0])
		e.planned, e.Forbidden = e.anonymous, 0
		for _, c := range e.claims {
			allowed := c
			if e.limited {
				allowed = limitTo1(c)
			}
			var counted uint64
			clients, counted = raise(clients, c.client, uint64(allowed.total), maxClients)
			added := allowed.above(counted)
			e.planned += added
			e.Forbidden += c.above(counted) - added
		}
		p.added += e.planned
		p.upTo = e.Sequence
	}
	p.contributors.clients = clients
	p.count = min(p.count+p.added, math.MaxInt32)
	p.contributors.sinks = set(p.contributors.sinks, a.instance, p.upTo, maxSinks)
	return p
}

// isReplayed reports whether the whole batch needs no write: it was counted before, through
// another sink.
func isReplayed(batch []Entry) bool {
	for i := range batch {
		if e := &batch[i]; e.planned > 0 || e.changes && !e.limited {
			return false
		}
	}
	return true
}

// carry marks the plan as carried by a write that is about to be sent.
func (a *Counter) carry(p plan) {
	if p.base == nil {
		oldest := &a.pending[0]
		a.author.begin(oldest.user, oldest.Sequence, a.carried)
	}
	a.carried, a.carriedByCreate = max(a.carried, p.upTo), p.base == nil
	if a.isExclusive() {
		a.sent = p
	}
}

// draft is a request that is being planned: begin, plan and commit make a request of what
// is pending. Only plan takes time: it hashes, copies and encodes.
type Draft struct {
	account *Counter
	may     Access
	batch   []Entry
	outcome draftOutcome
	request Request
}

// draftOutcome is what commit does with a draft.
type draftOutcome uint8

// begin starts a draft of the next request, or returns what settles without one. Something
// must be pending. Until commit, only add and absorbs may be called meanwhile.
func (a *Counter) Begin(may Access) (*Draft, []Settled) {
	if !may.Change && !a.Creates() {
		if out := a.detach(); len(out) > 0 {
			return nil, out
		}
	}
	d := &Draft{account: a, may: may, batch: a.batch()}
	d.request = Request{API: a.API(), Namespace: a.Namespace, RandomName: a.drawName(may)}
	a.frozen = d.batch[len(d.batch)-1].Sequence
	return d, nil
}

// plan plans the request. It may run while others call add and absorbs.
func (d *Draft) Plan() {
	a, r := d.account, &d.request
	a.identify()
	r.Name = a.name()
	if a.mustRead {
		r.Kind, r.Patch = Read, emptyPatch
		return
	}
	r.plan = a.plan(d.batch)
	base := r.plan.base
	switch {
	case r.plan.isTooMany():
		d.outcome = draftFull
	case base != nil && isReplayed(d.batch):
		d.outcome = draftReplayed
	case base != nil:
		r.Kind, r.Patch = Change, a.patchFor(d.batch, r.plan)
	case r.plan.added > 0:
		r.Kind, r.Event = Create, a.eventToCreate(d.batch, r.Name, r.plan)
		// Its content is the oldest one's, and so are the rules for it.
		r.API = apiFor(d.batch[0].Oldest.api, r.Event)
	case d.may.Change:
		// There is nothing to create an Event for, only one to change.
		r.Kind, r.Patch = Read, emptyPatch
	default:
		d.outcome = draftRefused
	}
}

// commit returns the request of a planned draft, or what settles without one.
func (a *Counter) Commit(d *Draft) (*Request, []Settled) {
	a.frozen = 0
	if &d.batch[0] != &a.pending[0] {
		copy(a.pending, d.batch) // add has moved them
	}
	r := &d.request
	switch d.outcome {
	case draftFull:
		// A write in doubt had room, and is repeated as it was; so there is none,
		// unless the count has changed and the resourceVersion has not.
		return nil, a.abandon()
	case draftReplayed:
		return nil, a.settleWritten(r.plan.upTo, false)
	case draftRefused:
		return nil, a.Drop(a.Last(), occurrence.Forbidden, nil)
	}
	if r.Kind != Read {
		a.carry(r.plan)
	}
	return r, nil
}
