package correlator_test

import (
	"time"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/correlator"
	"github.com/eventd/eventd/pkg/occurrence"
)

// simulation is a sink and a store behind a correlator, in the time of events.
// It follows the sink's rules of when a write is due, and no others:
//
//   - the latest decision on a series says when its pending write is due,
//     be it sooner or later than an earlier one said;
//   - when it is due, everything that is pending is written at once;
//   - what is added while a write is under way belongs to the next one.
type simulation struct {
	// latency is from when a write begins to when it is in the store.
	latency time.Duration

	now    time.Time
	owed   map[identity.Digest]*owed
	stored map[identity.Digest]int64
	writes []write
}

// owed is what one series owes.
type owed struct {
	pending int64 // in no write yet
	due     time.Time
	// latest is the last decision, which said when it is due.
	latest latest

	writing int64 // in the write under way
	lands   time.Time
}

// latest is a decision, and for whom it was made.
type latest struct {
	correlator.Decision
	subject string
	fresh   bool // the series had not been heard of for an interval
}

// write is one that has begun.
type write struct {
	latest
	digest    identity.Digest
	at, lands time.Time
	count     int64
}

func newSimulation(latency time.Duration) *simulation {
	return &simulation{
		latency: latency, now: beginning,
		owed: map[identity.Digest]*owed{}, stored: map[identity.Digest]int64{},
	}
}

// add takes a decision that is made now.
func (s *simulation) add(o *occurrence.Occurrence, d latest) {
	if d.Drop != occurrence.NoReason {
		return
	}
	digest := d.Target.Series()
	of := s.owed[digest]
	if of == nil {
		of = &owed{}
		s.owed[digest] = of
	}
	of.pending += o.Weight
	of.due, of.latest = s.now.Add(d.Delay), d
	s.advance(s.now)
}

// advance makes the writes that are due until then, in order.
func (s *simulation) advance(until time.Time) {
	for {
		at, digest, ok := s.next()
		if !ok || at.After(until) {
			s.now = until
			return
		}
		s.now = at
		s.step(digest, s.owed[digest])
	}
}

// finish makes all writes that are owed.
func (s *simulation) finish() {
	for len(s.owed) > 0 {
		at, _, _ := s.next()
		s.advance(at)
	}
}

// storedAt is what was in the store at a time that has passed.
func (s *simulation) storedAt(digest identity.Digest, at time.Time) int64 {
	var sum int64
	for _, w := range s.writes {
		if w.digest == digest && !w.lands.After(at) {
			sum += w.count
		}
	}
	return sum
}

// next is when something will happen next, and to which series.
func (s *simulation) next() (at time.Time, digest identity.Digest, ok bool) {
	for d, of := range s.owed {
		if when := of.next(); !ok || when.Before(at) {
			at, digest, ok = when, d, true
		}
	}
	return at, digest, ok
}

func (of *owed) next() time.Time {
	if of.writing > 0 {
		return of.lands
	}
	return of.due
}

// step ends the write under way, if there is one, or begins one.
func (s *simulation) step(digest identity.Digest, of *owed) {
	if of.writing > 0 {
		s.stored[digest] += of.writing
		of.writing = 0
		if of.pending == 0 {
			delete(s.owed, digest)
		} else if of.due.Before(s.now) {
			of.due = s.now
		}
		return
	}
	of.writing, of.pending, of.lands = of.pending, 0, s.now.Add(s.latency)
	s.writes = append(s.writes, write{
		latest: of.latest, digest: digest, at: s.now, lands: of.lands, count: of.writing,
	})
}
