package replication

import (
	"time"

	"github.com/eventd/eventd/internal/notify"
	"github.com/eventd/eventd/pkg/sink/internal/counter"
)

const (
	// maxBacklog bounds the memory of changes that a follower has not acknowledged.
	maxBacklog = 4 << 20
	// maxAdditions is the part of it for additions; see Journal.HasRoom.
	maxAdditions = maxBacklog / 4 * 3
	// snapshotChunk is the number of series that are read with the mutex held.
	snapshotChunk = 64
	// maxDelay is the time after which a follower that has not acknowledged a change is late.
	// What is accepted after that is lost if the process dies, so it is longer than a
	// follower has to wait for a processor. An occurrence whose write is deferred waits that
	// long, and only once while a follower hangs.
	maxDelay = time.Second
	// linger is for how long changes wait for others, with which they are sent, while nobody waits
	// for an acknowledgement and they take less than maxLingerBytes. It is a part of maxDelay.
	linger         = 50 * time.Millisecond
	maxLingerBytes = 64 << 10
)

// point is a point in the order of changes.
type point struct {
	position, sequence uint64
	recorded           int64
}

// Stream is the stream to one follower. At most one batch is not acknowledged; changes that are
// made meanwhile, and while it lingers, are the next one. The mutex of the journal's owner guards it.
type Stream struct {
	journal *Journal
	wake    chan struct{} // there may be something to send
	// snapshot are the series that are still to be read. known are those that the follower
	// knows: only their changes are sent. Both are nil when the snapshot is complete.
	snapshot []*counter.Counter
	known    map[*counter.Counter]struct{}
	// snapshotBytes is the memory of the snapshot when the stream was opened.
	snapshotBytes int64
	// unsent are the parts of a series that were read and not sent. Its changes wait for them.
	unsent []PendingSeries
	// backlog are the changes to send, since the first one.
	backlog []Change
	since   time.Time
	bytes   int64 // of the backlog and of the batch in flight
	// inFlight: a batch is not acknowledged, whose last point is sent, and whose first change
	// is from sentSince.
	inFlight  bool
	sent      point
	sentSince time.Time
	sentBytes int64
	// unsentOf and unackedOf are the bytes of additions, by tenant, in the backlog and in flight.
	unsentOf, unackedOf map[string]int64
	acked               point
	// progress is the time of the last batch or acknowledgement, or of the first change after them.
	progress   time.Time
	cuts       cuts
	captured   bool // the whole snapshot is
	complete   bool // the follower has acknowledged the snapshot
	late       bool
	alarm      *time.Timer
	alarmIsSet bool
	lingerEnd  *time.Timer // signals
	releases   []Mark
	answers    []answer
	failed     chan error // why it must end, though the session may hang
	full, over bool
}

func newStream(j *Journal) *Stream {
	s := &Stream{journal: j, wake: make(chan struct{}, 1), failed: make(chan error, 1), known: make(map[*counter.Counter]struct{}), late: true}
	s.unsentOf, s.unackedOf, s.progress = make(map[string]int64), make(map[string]int64), time.Now()
	for c := range j.owner.Pending() {
		s.snapshot = append(s.snapshot, c)
		s.snapshotBytes += SeriesBytes + c.Bytes()
	}
	for c, position := range j.releases {
		s.releases = append(s.releases, Mark{c, position})
	}
	s.alarm = time.AfterFunc(time.Hour, s.onAlarm)
	s.alarm.Stop()
	s.lingerEnd = time.AfterFunc(time.Hour, s.signal)
	s.lingerEnd.Stop()
	s.signal()
	return s
}

// IsInTime reports whether the follower holds everything but the changes of the last maxDelay.
func (s *Stream) IsInTime() bool { return s.complete && !s.late }

// signal wakes the writer of the session.
func (s *Stream) signal() { notify.Wake(s.wake) }

// add adds a change.
func (s *Stream) add(c *counter.Counter, change Change, bytes int64, now time.Time) {
	if s.full || !s.knows(c, change) {
		return
	}
	if s.bytes += bytes; s.bytes > maxBacklog {
		s.full, s.backlog = true, nil
		s.failed <- ErrTooSlow
		return
	}
	if len(s.backlog) == 0 {
		s.since = now
		if !s.inFlight {
			s.progress = now
		}
		s.lingerEnd.Reset(linger)
	}
	s.backlog = append(s.backlog, change)
	s.setAlarm(now)
	s.signalUnlessLingering(now)
}

// signalUnlessLingering wakes the writer of the session if it may have something to send, or to end.
func (s *Stream) signalUnlessLingering(now time.Time) {
	if !s.inFlight && !s.lingers(now) {
		s.signal()
	}
}

// lingers reports whether there is no backlog to send yet. Nothing lingers in a snapshot or at the end.
func (s *Stream) lingers(now time.Time) bool {
	switch {
	case !s.complete, s.journal.closing:
		return false
	case len(s.backlog) == 0:
		return true
	default:
		return s.journal.awaited <= s.sent.position && s.bytes < maxLingerBytes && now.Sub(s.since) < linger
	}
}

// hasRoom is Journal.HasRoom. A tenant without additions may use all that is left.
func (s *Stream) hasRoom(tenant string, bytes int64) bool {
	used, left := s.unsentOf[tenant]+s.unackedOf[tenant], maxAdditions-s.bytes-bytes
	return left >= 0 && (used == 0 || used+bytes <= left)
}

// knows reports whether the follower knows the series of a change, or learns of it by the change.
func (s *Stream) knows(c *counter.Counter, change Change) bool {
	if s.captured {
		return true
	}
	_, ok := s.known[c]
	if !ok && change.Addition != nil && change.Addition.Series != nil {
		s.known[c], ok = struct{}{}, true
	}
	return ok
}

// next returns the next batch, nil if there is none now. It reads a chunk of the snapshot.
func (s *Stream) next(now time.Time) *Batch {
	if s.full || s.inFlight || s.lingers(now) || s.complete && len(s.backlog) == 0 {
		return nil
	}
	s.progress = now
	b := &Batch{Position: s.journal.position, UpTo: s.journal.last}
	bytes := s.bytes
	b.Changes, s.backlog, s.bytes = s.changesToSend()
	if !s.captured {
		s.capture(b)
	}
	if b.Complete = s.captured && len(s.backlog) == 0; !b.Complete {
		clear(s.unsentOf)
		return b // it is not acknowledged
	}
	s.inFlight, s.sentSince, s.sentBytes, s.bytes = true, now, bytes, bytes
	s.unsentOf, s.unackedOf = s.unackedOf, s.unsentOf
	if len(b.Changes) > 0 {
		s.sentSince = s.since
	}
	s.sent = point{s.journal.position, s.journal.last, s.journal.recorded}
	s.cuts.sent = s.journal.last
	s.journal.sent = max(s.journal.sent, s.journal.last)
	return b
}

// changesToSend returns the changes of the next batch, and those of a series of which parts are left,
// with their memory.
func (s *Stream) changesToSend() (out, waiting []Change, bytes int64) {
	if len(s.unsent) == 0 {
		return s.backlog, nil, 0
	}
	for _, c := range s.backlog {
		if c.Key == s.unsent[0].Series.Key {
			waiting = append(waiting, c)
			bytes += c.bytes()
		} else {
			out = append(out, c)
		}
	}
	return out, waiting, bytes
}

// capture adds the next part of the snapshot to a batch: all that is pending (rules Snapshot and
// SendAll).
func (s *Stream) capture(b *Batch) {
	left := int64(partBytes)
	b.Snapshot, left = nextPart(&s.unsent, left)
	for n := 0; n < snapshotChunk && left > 0 && len(s.snapshot) > 0; n++ {
		c := s.snapshot[0]
		s.snapshot[0] = nil
		s.snapshot = s.snapshot[1:]
		if _, ok := s.known[c]; ok {
			continue
		}
		s.known[c] = struct{}{}
		entries := c.Records()
		if len(entries) == 0 {
			continue
		}
		s.unsent = []PendingSeries{{c.Series(), entries}}
		var part []PendingSeries
		part, left = nextPart(&s.unsent, left)
		b.Snapshot = append(b.Snapshot, part...)
	}
	if len(s.snapshot)+len(s.unsent) == 0 {
		s.snapshot, s.known, s.captured = nil, nil, true
	}
}

// acknowledge records that the follower holds everything up to a position.
func (s *Stream) acknowledge(position uint64, now time.Time) error {
	if s.over || !s.inFlight || position != s.sent.position {
		return errNotSent
	}
	s.inFlight, s.complete, s.acked, s.progress = false, true, s.sent, now
	clear(s.unackedOf)
	s.cuts.acked = s.acked.sequence
	s.bytes -= s.sentBytes
	if since, ok := s.waitingSince(); !ok || now.Sub(since) < maxDelay {
		s.late = false
		s.setAlarm(now)
	}
	s.signalUnlessLingering(now)
	return nil
}

// waitingSince returns the time of the oldest change that is not acknowledged.
func (s *Stream) waitingSince() (_ time.Time, ok bool) {
	switch {
	case s.inFlight:
		return s.sentSince, true
	case len(s.backlog) > 0:
		return s.since, true
	default:
		return time.Time{}, false
	}
}

// setAlarm has onAlarm be called when the follower may be late.
func (s *Stream) setAlarm(now time.Time) {
	if since, ok := s.waitingSince(); ok && !s.late && !s.alarmIsSet {
		s.alarmIsSet = true
		s.alarm.Reset(since.Add(maxDelay).Sub(now))
	}
}

func (s *Stream) onAlarm() {
	s.journal.owner.Mutex.Lock()
	now := time.Now()
	s.alarmIsSet = false
	since, ok := s.waitingSince()
	isLate := ok && !s.over && now.Sub(since) >= maxDelay
	if isLate {
		s.late = true
	} else if !s.over {
		s.setAlarm(now)
	}
	s.journal.owner.Mutex.Unlock()
	if isLate {
		s.journal.owner.Changed()
	}
}

// end ends the stream. Its cuts stay.
func (s *Stream) end() {
	if s.over {
		return
	}
	s.over = true
	s.alarm.Stop()
	s.lingerEnd.Stop()
	delete(s.journal.streams, s)
	s.journal.ended = s.journal.ended.add(s.cuts, s.journal.pendingUpTo)
	s.backlog, s.snapshot, s.unsent, s.known, s.answers, s.releases = nil, nil, nil, nil, nil, nil
}

// isDone reports whether the follower holds everything.
func (s *Stream) isDone() bool {
	return s.complete && !s.inFlight && s.acked.position == s.journal.position && len(s.answers)+len(s.releases) == 0
}
