// Package replication has other replicas hold what one has pending, as docs/replication-protocol.md
// specifies.
//
// A Journal follows what the counters of one sink have pending. A Stream sends that to one
// follower. Its owner is the sink: the sink's mutex guards both, and none of their methods blocks.
// Holdings are what a process holds of other sinks, with a mutex of their own. Serve and Follow are the two ends
// of a session; no mutex is held while they read or write, and they return when their context
// ends, though a read, a write or a Close of the session never returns.
package replication

import (
	"errors"
	"iter"
	"sync"
	"time"

	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/counter"
)

// Owner is the sink of a Journal.
type Owner struct {
	// Mutex guards the Journal. It is held when the counters call it.
	Mutex sync.Locker
	// Pending returns the counters with pending occurrences of the own instance. Mutex is held.
	Pending func() iter.Seq[*counter.Counter]
	// Changed is called when a follower has acknowledged something, is late, or has ended.
	// Mutex is not held.
	Changed func()
}

// Journal implements counter.Journal. Beside Counted, its owner's mutex guards it.
type Journal struct {
	owner    Owner
	instance counter.Contributor
	// position counts the changes of what is pending. last is the sequence of the newest
	// occurrence, and recorded the weight of all.
	position, last uint64
	recorded       int64
	added          int64  // bytes of the last addition
	awaited        uint64 // up to this position, somebody waits for an acknowledgement
	sent           uint64 // highest sequence that a follower may hold
	streams        map[*Stream]struct{}
	ended          endedCuts
	totals         *totals
	releases       map[counter.Contributor]uint64
	closing        bool
}

var _ counter.Journal = &Journal{}

// NewJournal returns the journal of an instance.
func NewJournal(instance counter.Contributor, o Owner) *Journal {
	return &Journal{
		owner: o, instance: instance, streams: make(map[*Stream]struct{}), totals: newTotals(),
		releases: make(map[counter.Contributor]uint64),
	}
}

// Recorded adds to the weight of all that was added. The last addition is charged to a tenant.
func (j *Journal) Recorded(weight int64, tenant string) {
	j.recorded += weight
	for s := range j.streams {
		s.unsentOf[tenant] += j.added
	}
}

// HasRoom reports whether an addition of a tenant takes no more of the memory of unacknowledged
// changes than the tenant leaves to others, with one of the followers. Those that have hung for
// maxDelay do not count: they cost nobody an occurrence.
func (j *Journal) HasRoom(tenant string, bytes int64, now time.Time) bool {
	full := false
	for s := range j.streams {
		if s.hasRoom(tenant, bytes) {
			return true
		}
		full = full || now.Sub(s.progress) < maxDelay
	}
	return !full
}

// SendNow has all changes so far sent at once, since somebody waits for their acknowledgement. It
// returns the number of changes.
func (j *Journal) SendNow() (position uint64) {
	j.awaited = j.position
	now := time.Now()
	for s := range j.streams {
		s.signalUnlessLingering(now)
	}
	return j.position
}

// Added implements counter.Journal.
func (j *Journal) Added(c *counter.Counter, a counter.Addition) {
	j.last = a.Entry.Sequence
	j.record(c, Change{Key: c.Key, Addition: &a})
}

// Joined implements counter.Journal.
func (j *Journal) Joined(c *counter.Counter, first, second uint64) {
	j.ended = j.ended.removed(first)
	j.record(c, Change{Key: c.Key, First: first, Second: second})
}

// Settled implements counter.Journal.
func (j *Journal) Settled(c *counter.Counter, sequences []uint64) {
	for _, sequence := range sequences {
		j.ended = j.ended.removed(sequence)
	}
	j.record(c, Change{Key: c.Key, Settled: sequences})
}

func (j *Journal) record(c *counter.Counter, change Change) {
	j.position++
	if len(j.streams) == 0 {
		return
	}
	now, bytes := time.Now(), change.bytes()
	j.added = bytes
	for s := range j.streams {
		s.add(c, change, bytes, now)
	}
}

// Keeps implements counter.Journal.
func (j *Journal) Keeps(first, second uint64) bool {
	for s := range j.streams {
		if s.cuts.keep(first, second) {
			return true
		}
	}
	return j.ended.keep(first, second)
}

// Sent implements counter.Journal.
func (j *Journal) Sent() uint64 { return j.sent }

// Counted implements counter.Journal.
func (j *Journal) Counted(series occurrence.Digest, event counter.EventID, client counter.Contributor) uint64 {
	return j.totals.get(totalKey{series, event, client})
}

// Raise records a total of a client that was seen to be counted on an Event. It is safe for
// concurrent use.
func (j *Journal) Raise(namespace string, series occurrence.Digest, event counter.EventID, client counter.Contributor, total uint64) {
	j.totals.raise(namespace, totalKey{series, event, client}, total)
}

// Release has all followers, later ones too, release what they hold of a contributor up to a
// position: all of it has settled.
func (j *Journal) Release(c counter.Contributor, position uint64) {
	j.releases[c] = position
	for s := range j.streams {
		s.releases = append(s.releases, Mark{c, position})
		s.signal()
	}
}

// Forget forgets the release of a contributor. Later followers keep what they hold of it.
func (j *Journal) Forget(c counter.Contributor) { delete(j.releases, c) }

// State is how well the followers follow.
type State struct {
	// Complete followers hold everything but the changes of the last maxDelay. CatchingUp are
	// the others.
	Complete, CatchingUp int
	// Holds: a follower has acknowledged a whole snapshot, and what was added since up to a
	// position and sequence, which are the highest. Recorded is the weight of what was added up
	// to there.
	Holds              bool
	Position, Sequence uint64
	Recorded           int64
}

// State returns that of the open streams.
func (j *Journal) State() (out State) {
	for s := range j.streams {
		if s.IsInTime() {
			out.Complete++
		} else {
			out.CatchingUp++
		}
		if s.complete && s.acked.position >= out.Position {
			out.Holds, out.Position, out.Sequence, out.Recorded = true, s.acked.position, s.acked.sequence, s.acked.recorded
		}
	}
	return out
}

// Unreplicated returns the weight of what no complete follower has acknowledged.
func (j *Journal) Unreplicated(pending int64) int64 {
	if state := j.State(); state.Complete > 0 {
		return min(pending, j.recorded-state.Recorded)
	}
	return pending
}

// maxSessions bounds the followers of a sink.
const maxSessions = 8

var (
	// ErrClosed ends the sessions of a sink that is closed.
	ErrClosed  = errors.New("the sink is closed")
	errTooMany = errors.New("too many followers")
	// ErrTooSlow ends the session of a follower that has not acknowledged too much.
	ErrTooSlow = errors.New("the follower is too slow")
	errNotSent = errors.New("the follower has acknowledged what was not sent")
)

// Open opens a stream.
func (j *Journal) Open() (*Stream, error) {
	switch {
	case j.closing:
		return nil, ErrClosed
	case len(j.streams) >= maxSessions:
		return nil, errTooMany
	}
	s := newStream(j)
	j.streams[s] = struct{}{}
	return s, nil
}

// HasStreams reports whether there is a follower, late or not.
func (j *Journal) HasStreams() bool { return len(j.streams) > 0 }

// Close refuses new streams. Those that are open end once their followers hold everything.
func (j *Journal) Close() {
	j.closing = true
	for s := range j.streams {
		s.signal()
	}
}

// pendingUpTo returns how many entries are pending up to a sequence.
func (j *Journal) pendingUpTo(sequence uint64) (n int) {
	for c := range j.owner.Pending() {
		n += c.EntriesUpTo(sequence)
	}
	return n
}
