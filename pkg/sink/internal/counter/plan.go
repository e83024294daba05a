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

// isTooMany reports whether the count of the object would overflow. Then the next write uses
// another Event, so an Event with the highest count costs nobody an occurrence.
func (p *plan) isTooMany() bool { return p.base != nil && p.base.count+p.added > math.MaxInt32 }

// MaxBatch bounds the entries and claims of one write, and so the time to plan and to settle
// it: some milliseconds, at 0.1 µs for a claim and 0.2 µs for an entry. A series has no more pending
// if others may adopt it (rule Batch).
const MaxBatch = 1 << 15

// batch returns the entries of the next write. If a write is in doubt whose effect no
// annotation shows, or whose object may be nearly full, the batch is that of the write in
// doubt.
func (c *Counter) batch() []Entry {
	n, size := 0, 0
	repeats := len(c.pending) > 0 && c.pending[0].Sequence <= c.inDoubt && (c.isExclusive() || c.isNearlyFull())
	for ; n < len(c.pending) && !(repeats && c.pending[n].Sequence > c.inDoubt); n++ {
		if size += c.pending[n].Size(); size > MaxBatch {
			break
		}
	}
	return c.pending[:n]
}

// isNearlyFull reports whether the count of the object may overflow with all pending entries.
func (c *Counter) isNearlyFull() bool {
	return c.observed != nil && c.observed.count > math.MaxInt32-c.weight()
}

// plan returns the plan of a write of the whole batch.
func (c *Counter) plan(batch []Entry) plan {
	p := plan{base: c.observed}
	if p.base == nil {
		p.contributors.creator = c.instance
	} else {
		p.count, p.contributors = p.base.count, p.base.contributors
	}
	clients := append(make([]contribution, 0, maxClients+1), p.contributors.clients...)
	for i := range batch {
		e := &batch[i]
		e.limited = c.limits(e, &batch[0])
		e.planned, e.Forbidden = e.anonymous, 0
		for _, claim := range e.claims {
			allowed := claim
			if e.limited {
				allowed = limitTo1(claim)
			}
			known := c.counted(claim.Client)
			var counted uint64
			clients, counted = raise(clients, claim.Client, max(uint64(allowed.Total), known), maxClients)
			counted = max(counted, known)
			added := allowed.above(counted)
			e.planned += added
			e.Forbidden += claim.above(counted) - added
		}
		p.added += e.planned
		p.upTo = e.Sequence
	}
	p.contributors.clients = clients
	p.count = min(p.count+p.added, math.MaxInt32)
	p.contributors = p.contributors.write(c.instance, p.upTo)
	return p
}

// counted returns the total of a client that this process has seen to be counted on the observed
// Event (rules Names and Totals). Its annotation may have forgotten it.
func (c *Counter) counted(client Contributor) uint64 {
	if c.journal == nil || c.observed == nil {
		return 0
	}
	return c.journal.Counted(c.digest, c.observed.id, client)
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

// carry records that a write with the plan is about to be sent.
func (c *Counter) carry(p plan) {
	if p.base == nil {
		c.author.begin(&c.pending[0], c.carried)
	}
	c.carried, c.carriedByCreate = max(c.carried, p.upTo), p.base == nil
	if c.isExclusive() {
		c.sent = p
	}
}

// Draft is a request that is being planned, in three steps: Begin, Plan and Commit. Only Plan
// takes time: it hashes, copies and encodes.
type Draft struct {
	counter *Counter
	may     Access
	batch   []Entry
	outcome draftOutcome
	request Request
}

// draftOutcome is what Commit does with a draft.
type draftOutcome uint8

const (
	draftRequest  draftOutcome = iota // send the request
	draftFull                         // use another Event: the count would overflow
	draftReplayed                     // settle the batch: it was counted before
	draftRefused                      // drop the batch: it may not change the Event
)

// Begin starts a draft of the next request, or returns what settles without one. Something
// must be pending. Until Commit, only the methods may be called that the package comment names.
func (c *Counter) Begin(may Access) (*Draft, []Settled) {
	if c.adopted && !c.canFind(may) {
		return nil, c.settleUncertain(c.Last())
	}
	if !may.Change && !c.Creates() {
		if out := c.detach(); len(out) > 0 {
			return nil, out
		}
	}
	d := &Draft{counter: c, may: may, batch: c.batch()}
	d.request = Request{API: c.API(), Namespace: c.Namespace, RandomName: c.drawName(may)}
	c.frozen = d.batch[len(d.batch)-1].Sequence
	return d, nil
}

// Plan plans the request. See the package comment for what others may call meanwhile.
func (d *Draft) Plan() {
	c, r := d.counter, &d.request
	c.identify()
	r.Name = c.name()
	if c.mustRead {
		r.Kind, r.Patch = Read, emptyPatch
		return
	}
	r.plan = c.plan(d.batch)
	base := r.plan.base
	isFull, replayed := r.plan.isTooMany(), base != nil && isReplayed(d.batch)
	switch {
	case base != nil && base.recalled && (isFull || replayed):
		r.Kind, r.Patch = Read, emptyPatch
	case isFull:
		d.outcome = draftFull
	case replayed:
		d.outcome = draftReplayed
	case base != nil:
		r.Kind, r.Patch = Change, c.patchFor(d.batch, r.plan)
	case r.plan.added > 0:
		r.Kind, r.Event = Create, c.eventToCreate(d.batch, r.Name, r.plan)
		// Its content is that of the oldest, and so is its API.
		r.API = apiFor(d.batch[0].Oldest.API, r.Event)
	case d.may.Change:
		// There is nothing to create an Event for, only one to change.
		r.Kind, r.Patch = Read, emptyPatch
	default:
		d.outcome = draftRefused
	}
}

// Commit returns the request of a planned draft, or what settles without one.
func (c *Counter) Commit(d *Draft) (*Request, []Settled) {
	c.frozen, c.unidentified = 0, nil
	c.pending, c.late = append(c.pending, c.late...), nil
	r := &d.request
	switch d.outcome {
	case draftFull:
		// A write in doubt had room, and is repeated as it was. So none is in doubt,
		// unless the count has changed and the resourceVersion has not.
		return nil, c.abandon()
	case draftReplayed:
		return nil, c.settleWritten(r.plan.upTo, false)
	case draftRefused:
		return nil, c.Drop(c.Last(), occurrence.Forbidden, nil)
	}
	r.carried = c.carried
	if r.Kind != Read {
		c.carry(r.plan)
	}
	return r, nil
}
