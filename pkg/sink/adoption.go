package sink

import (
	"context"
	"time"

	"github.com/eventd/eventd/internal/notify"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/counter"
	"github.com/eventd/eventd/pkg/sink/internal/replication"
)

const (
	// adoptAfter is the delay of the first write of what was adopted, so that it comes after
	// what clients wait for.
	adoptAfter = time.Second
	// adoptChunk is the number of series that are adopted with the mutex held.
	adoptChunk = 64
	// maxAdoptions bounds the contributors of which it is known what has settled. It is more
	// than the positions that Holdings keep, or those that are forgotten were adopted again.
	maxAdoptions = 128
)

// adoptions are what this process writes in the names of others while it leads. The sink's mutex
// guards them, and their counters as it does all others.
type adoptions struct {
	leading bool
	of      map[counter.Contributor]*adoption
	order   []counter.Contributor // oldest first
	wake    chan struct{}         // of the goroutine that adopts
	ended   chan struct{}         // closed when that has ended
}

// adoption is what was adopted of one contributor.
type adoption struct {
	contributor counter.Contributor
	// holding is the newest that was adopted, at position 0 if none is.
	holding replication.Holding
	// waiting are its series that were not adopted yet. Those in blocked wait until the counter
	// of an earlier holding has nothing pending.
	waiting, blocked replication.Mirror
	// pending are the series that were adopted. They are nil while their counters are made.
	pending map[occurrence.Key]*pendingSeries
	// settled is up to where the series have settled (rule Marks). All up to settledUpTo have
	// since the holding at settledAt has settled as a whole.
	settled                map[occurrence.Key]uint64
	settledAt, settledUpTo uint64
	epoch                  int // counts the times that it was dropped
}

// adopted is what a pendingSeries has if it was adopted.
type adopted struct {
	adoption *adoption
	key      occurrence.Key // of the series, in the process of the contributor
	last     uint64         // sequence of the contributor
	since    uint64         // sequence of the sink at the time of the adoption
	// dropped: it ends as soon as it is not in work. handedOver: it has ended so.
	dropped, handedOver bool
}

// get returns the adoption of a contributor, which it adds if it is missing.
func (a *adoptions) get(c counter.Contributor) *adoption {
	of := a.of[c]
	if of == nil {
		of = &adoption{
			contributor: c,
			pending:     make(map[occurrence.Key]*pendingSeries), settled: make(map[occurrence.Key]uint64),
		}
		a.of[c] = of
		a.order = append(a.order, c)
	}
	return of
}

// unblock removes a series from what is pending. A newer one may be adopted now.
func (a *adoption) unblock(key occurrence.Key) {
	delete(a.pending, key)
	if series, ok := a.blocked[key]; ok {
		delete(a.blocked, key)
		a.waiting[key] = series
	}
}

// isUnderWay reports whether something is left to write.
func (a *adoption) isUnderWay() bool { return len(a.waiting)+len(a.blocked)+len(a.pending) > 0 }

// SetLeading sets whether the sink writes what other sinks had pending at their end: what its Holdings
// hold, and what followers hand over. It returns at once. When the sink no longer leads, what is
// not written of that settles as handed over, and stays in the Holdings.
func (s *Sink) SetLeading(leading bool) {
	if s.journal == nil {
		return
	}
	s.mu.Lock()
	s.adoptions.leading = leading
	var out []counter.Settled
	if !leading {
		for _, a := range s.adoptions.of {
			out = append(out, s.dropAdoption(a, time.Now())...)
		}
	}
	s.mu.Unlock()
	notify.Wake(s.adoptions.wake)
	s.count(out) // nobody waits for it
}

// adoptWhenNeeded adopts until the sink is closed.
func (s *Sink) adoptWhenNeeded(ctx context.Context) {
	defer close(s.adoptions.ended)
	holdings := s.options.Holdings.held
	for {
		changed := holdings.Changed()
		out, begun := s.updateAdoptions(holdings)
		s.count(out)
		for _, h := range begun {
			s.errorLog.adopting(h.Contributor, len(h.Series))
		}
		for chunk := s.nextToAdopt(); len(chunk) > 0; chunk = s.nextToAdopt() {
			for i := range chunk {
				chunk[i].make(s.journal)
			}
			s.addAdopted(chunk)
		}
		for _, c := range s.finishAdoptions(holdings) {
			s.errorLog.adopted(c)
		}
		select {
		case <-changed:
		case <-s.adoptions.wake:
		case <-ctx.Done():
			return
		}
	}
}

// updateAdoptions begins to adopt what is held now, and drops what was adopted of contributors from
// which a stream is open again. It returns what has settled, and the holdings that are adopted.
func (s *Sink) updateAdoptions(holdings *replication.Holdings) (out []counter.Settled, begun []replication.Holding) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for _, a := range s.adoptions.of {
		if holdings.IsOpen(a.contributor) {
			out = append(out, s.dropAdoption(a, now)...)
		}
	}
	if !s.adoptions.leading || s.closed {
		return out, nil
	}
	for _, h := range holdings.Ended() {
		if h.Contributor == s.instance { // rule Own
			continue
		}
		switch a := s.adoptions.get(h.Contributor); {
		case h.Position <= a.settledAt:
			// The contributor has sent it once more, before it saw that it is counted.
			holdings.Release(h.Contributor, a.settledAt)
		case h.Position > a.holding.Position: // rule Newest
			a.holding, a.waiting, a.blocked = h, h.Series.Clone(), make(replication.Mirror)
			if len(h.Series) > 0 {
				begun = append(begun, h)
			}
		}
	}
	return out, begun
}

// toAdopt is a series whose counter is made.
type toAdopt struct {
	adoption *adoption
	epoch    int
	key      occurrence.Key
	series   *replication.HeldSeries
	settled  uint64
	counter  *counter.Counter // nil if nothing is left to write
}

// make makes the counter. That takes time, so it does not hold the mutex.
func (n *toAdopt) make(j *replication.Journal) {
	o := n.series.Pending()
	for len(o.Entries) > 0 && o.Entries[0].Sequence <= n.settled {
		o.Entries = o.Entries[1:]
	}
	if len(o.Entries) > 0 {
		n.counter = counter.Adopt(n.adoption.contributor, *o.Series, o.Entries, j)
	}
}

// nextToAdopt returns the next series to adopt.
func (s *Sink) nextToAdopt() (out []toAdopt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	for _, a := range s.adoptions.of {
		for key, series := range a.waiting {
			if len(out) == adoptChunk {
				return out
			}
			delete(a.waiting, key)
			if _, ok := a.pending[key]; ok {
				a.blocked[key] = series
				continue
			}
			a.pending[key] = nil
			out = append(out, toAdopt{adoption: a, epoch: a.epoch, key: key, series: series, settled: max(a.settled[key], a.settledUpTo)})
		}
	}
	return out
}

// addAdopted adds counters to what is pending.
func (s *Sink) addAdopted(chunk []toAdopt) {
	var parts []Part
	defer func() { s.traceAdopted(parts) }() // without the mutex
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for i := range chunk {
		n := &chunk[i]
		n.adoption.unblock(n.key)
		if n.counter == nil || n.epoch != n.adoption.epoch || s.closed {
			continue
		}
		p := newPendingSeries(n.counter)
		p.adopted = &adopted{adoption: n.adoption, key: n.key, last: n.counter.Last(), since: s.sequence}
		at := now.Add(adoptAfter)
		if s.flushing > 0 {
			at = now
		}
		p.deadlines = append(p.deadlines, deadline{at, p.adopted.last})
		entries := n.counter.Pending()
		for i := range entries {
			e := &entries[i]
			e.Generation, e.Bytes = s.generations.enter(), 0 // its memory is that of the holdings
			s.total.occurrences += e.Weight
			s.ledger.Adopt(e.Weight)
			if s.options.Trail != nil {
				parts = append(parts, partOf(e, e.Weight))
			}
		}
		n.adoption.pending[n.key] = p
		s.pending[n.counter.Key] = p
		s.reschedule(p, now)
	}
}

// markAdopted records up to where an adopted series has settled. The mutex must be held.
func (s *Sink) markAdopted(p *pendingSeries) {
	a := p.adopted
	if a.handedOver {
		return
	}
	upTo := a.last
	if left := p.counter.Pending(); len(left) > 0 {
		upTo = left[0].Sequence - 1
	}
	if upTo > a.adoption.settled[a.key] {
		a.adoption.settled[a.key] = upTo
	}
}

// endAdopted records that nothing is pending of an adopted series. The mutex must be held.
func (s *Sink) endAdopted(p *pendingSeries) {
	if a := p.adopted; a.adoption.pending[a.key] == p {
		a.adoption.unblock(a.key)
	}
	notify.Wake(s.adoptions.wake)
}

// dropAdoption drops what was adopted of a contributor, which stays in the holdings: at once, or
// when it is no longer in work. It returns what has settled. The mutex must be held.
func (s *Sink) dropAdoption(a *adoption, now time.Time) (out []counter.Settled) {
	a.epoch++
	a.holding, a.waiting, a.blocked = replication.Holding{}, nil, nil
	for _, p := range a.pending {
		if p == nil {
			continue // its counter is being made
		}
		p.adopted.dropped = true
		if !p.job.Running() {
			out = append(out, s.handOverAdopted(p)...)
			s.scheduler.Remove(&p.job, now)
		}
	}
	return out
}

// handOverAdopted settles what is pending of an adopted series as handed over. It must not be in
// work, and the mutex must be held.
func (s *Sink) handOverAdopted(p *pendingSeries) []counter.Settled {
	s.markAdopted(p)
	out := p.counter.HandOver(p.adopted.last)
	p.adopted.handedOver = true
	s.release(p)
	return out
}

// finishAdoptions releases the holdings of which everything has settled, and returns the
// contributors of those that were not empty.
func (s *Sink) finishAdoptions(holdings *replication.Holdings) (finished []counter.Contributor) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.adoptions.of {
		if h := &a.holding; h.Position > 0 && !a.isUnderWay() {
			if len(h.Series) > 0 {
				finished = append(finished, a.contributor)
			}
			a.settledAt, a.settledUpTo = h.Position, max(a.settledUpTo, h.UpTo)
			holdings.Release(a.contributor, a.settledAt)
			s.journal.Release(a.contributor, a.settledAt)
			a.holding, a.waiting = replication.Holding{}, nil
			clear(a.settled)
		}
	}
	s.forgetAdoptions()
	return finished
}

// forgetAdoptions forgets the oldest contributors of which nothing is left to write. The mutex
// must be held.
func (s *Sink) forgetAdoptions() {
	kept := s.adoptions.order[:0]
	tooMany := len(s.adoptions.order) - maxAdoptions
	for _, c := range s.adoptions.order {
		if tooMany > 0 && !s.adoptions.of[c].isUnderWay() {
			tooMany--
			delete(s.adoptions.of, c)
			s.journal.Forget(c)
			continue
		}
		kept = append(kept, c)
	}
	s.adoptions.order = kept
}
