package correlator_test

import (
	"time"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/correlator"
	"github.com/eventd/eventd/pkg/occurrence"
)

// simulation is a sink and a store behind a correlator, in simulated time. Its rules for
// writes are those of the sink:
//
//   - the latest decision on a series determines when its pending write is due;
//   - when it is due, all pending occurrences are written at once;
//   - what is added during a write belongs to the next one.
type simulation struct {
	// latency is the duration of a write.
	latency time.Duration

	now    time.Time
	series map[identity.Digest]*unwritten
	stored map[identity.Digest]int64
	writes []write
}

// unwritten has the occurrences of a series that are not stored yet.
type unwritten struct {
	pending int64 // in no write yet
	due     time.Time
	latest  latest

	writing int64 // in the write under way
	lands   time.Time
}

// latest is the last decision on a series.
type latest struct {
	correlator.Decision
	subject string
	fresh   bool // the series was quiet for an interval before
}

// write is a write that has begun.
type write struct {
	latest
	digest    identity.Digest
	at, lands time.Time
	count     int64
}

func newSimulation(latency time.Duration) *simulation {
	return &simulation{
		latency: latency, now: beginning,
		series: map[identity.Digest]*unwritten{}, stored: map[identity.Digest]int64{},
	}
}

// add applies a decision that is made now.
func (s *simulation) add(o *occurrence.Occurrence, d latest) {
	if d.Drop != occurrence.NoReason {
		return
	}
	digest := d.Target.Series()
	of := s.series[digest]
	if of == nil {
		of = &unwritten{}
		s.series[digest] = of
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
		s.step(digest, s.series[digest])
	}
}

// finish makes all pending writes.
func (s *simulation) finish() {
	for len(s.series) > 0 {
		at, _, _ := s.next()
		s.advance(at)
	}
}

// storedAt returns the count in the store at a time in the past.
func (s *simulation) storedAt(digest identity.Digest, at time.Time) int64 {
	var sum int64
	for _, w := range s.writes {
		if w.digest == digest && !w.lands.After(at) {
			sum += w.count
		}
	}
	return sum
}

// next returns when the next write begins or ends, and its series.
func (s *simulation) next() (at time.Time, digest identity.Digest, ok bool) {
	for d, of := range s.series {
		if when := of.next(); !ok || when.Before(at) {
			at, digest, ok = when, d, true
		}
	}
	return at, digest, ok
}

func (of *unwritten) next() time.Time {
	if of.writing > 0 {
		return of.lands
	}
	return of.due
}

// step ends the current write of a series, or begins one.
func (s *simulation) step(digest identity.Digest, of *unwritten) {
	if of.writing > 0 {
		s.stored[digest] += of.writing
		of.writing = 0
		if of.pending == 0 {
			delete(s.series, digest)
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
