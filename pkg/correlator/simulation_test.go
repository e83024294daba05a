package correlator_test

import (
	"time"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/correlator"
)

// simulation is a sink and a store behind a correlator, in simulated time. Its rules for
// writes are those of the sink:
//
//   - the latest decision on a series determines when its pending write is due;
//   - when it is due, all pending occurrences are written at once;
//   - what is added during a write belongs to the next one.
type simulation struct {
	latency time.Duration // of a write
	now     time.Time
	series  map[identity.Digest]*pending
	writes  []write
}

// pending has the occurrences of a series that are in no write yet.
type pending struct {
	latest
	count int64
	due   time.Time
	free  time.Time // the end of the last write
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

// add applies a decision that is made now.
func (s *simulation) add(d latest) {
	digest := d.Target.Series()
	p := s.series[digest]
	if p == nil {
		p = &pending{}
		s.series[digest] = p
	}
	p.count++
	p.due, p.latest = s.now.Add(d.Delay), d
	s.advance(s.now)
}

// advance makes the writes that are due until then, in order.
func (s *simulation) advance(until time.Time) {
	for s.write(until) {
	}
	s.now = until
}

// finish makes all pending writes.
func (s *simulation) finish() {
	for s.write(s.now.Add(correlator.MaxHeartbeat * 1000)) {
	}
}

// write makes the next write, if there is one until then.
func (s *simulation) write(until time.Time) bool {
	var next identity.Digest
	at := until.Add(1)
	for digest, p := range s.series {
		begins := p.due
		if p.free.After(begins) {
			begins = p.free
		}
		if p.count > 0 && begins.Before(at) {
			at, next = begins, digest
		}
	}
	if at.After(until) {
		return false
	}
	p := s.series[next]
	s.now, p.free = at, at.Add(s.latency)
	s.writes = append(s.writes, write{latest: p.latest, digest: next, at: at, lands: p.free, count: p.count})
	p.count = 0
	return true
}

// storedAt returns the count in the store at a time in the past.
func (s *simulation) storedAt(digest identity.Digest, at time.Time) (sum int64) {
	for _, w := range s.writes {
		if w.digest == digest && !w.lands.After(at) {
			sum += w.count
		}
	}
	return sum
}
