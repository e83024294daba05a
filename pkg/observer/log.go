package observer

import (
	"sync"

	"github.com/eventd/eventd/internal/notify"
)

// segment is a part of the log in which nothing is missing.
type segment struct {
	epoch int64
	// from is the point after which it has everything.
	from string
	// first is the sequence number of its first version.
	first int64
}

// sharedLog is what the shared watch has observed, for all readers. The goroutine of Run is the only
// one that adds to it. Methods whose names end in Locked need mu; the others take it.
type sharedLog struct {
	maxBytes int64
	codec    *codec

	mu      sync.Mutex
	buffer  buffer
	readers map[*Reader]struct{}
	// segments are those that are still in the buffer. Versions are added to the last one. There is
	// none before the first connection.
	segments []segment
	epoch    int64
	// position is what the shared watch has reached.
	position string
	// seen is the highest resourceVersion that the apiserver is known to have had in this epoch.
	seen    string
	changes notify.Notifier
	// recheck tells the goroutine of Run to connect again: to compare what the apiserver has with seen.
	recheck chan struct{}
}

func newSharedLog(start Cursor, maxBytes int64, s sizes, c *codec) *sharedLog {
	return &sharedLog{
		maxBytes: maxBytes,
		codec:    c,
		buffer:   buffer{sizes: s},
		readers:  make(map[*Reader]struct{}),
		epoch:    start.Epoch,
		position: start.ResourceVersion,
		seen:     start.ResourceVersion,
		recheck:  make(chan struct{}, 1),
	}
}

// point is what was known before a request.
type point struct {
	epoch    int64
	position string
	seen     string
}

func (l *sharedLog) point() point {
	l.mu.Lock()
	defer l.mu.Unlock()
	return point{l.epoch, l.position, l.seen}
}

// answered takes note of the current resourceVersion, from the answer to a consistent read that
// began after before. If it is lower than what was seen then, etcd was restored from a backup, and a
// new epoch begins. ok is false if one begins, or began meanwhile: then rv may be of either.
func (l *sharedLog) answered(rv string, before point) (restored, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.epoch != before.epoch:
		return false, false
	case newer(before.seen, rv):
		l.epoch++
		l.seen = rv
		l.cutLocked(rv)
		return true, false
	default:
		l.seen = newest(l.seen, rv)
		return false, true
	}
}

// connected begins the first segment, if none has begun. Readers without a cursor begin at rv, which
// is current.
func (l *sharedLog) connected(rv string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.segments) == 0 {
		if l.position == "" {
			l.position = rv
		}
		l.cutLocked(l.position)
	}
	for r := range l.readers {
		r.beginLocked(l, rv)
	}
}

// cut begins a segment after versions were missed, unless the shared watch has got on since at.
func (l *sharedLog) cut(from string, at point) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.epoch == at.epoch && l.position == at.position {
		l.cutLocked(from)
	}
}

func (l *sharedLog) cutLocked(from string) {
	next := segment{l.epoch, from, l.buffer.next}
	if n := len(l.segments); n > 0 && l.segments[n-1].first == next.first {
		l.segments[n-1] = next
	} else {
		l.segments = append(l.segments, next)
	}
	l.position = from
	l.changes.Notify()
}

// add moves the position, and adds a version if the change has one. It returns false if another
// epoch has begun.
func (l *sharedLog) add(c change, v Version, epoch int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.epoch != epoch {
		return false
	}
	if !newer(c.rv, l.position) {
		return true
	}
	l.position, l.seen = c.rv, newest(l.seen, c.rv)
	if c.event != nil {
		l.buffer.add(v)
		for r := range l.readers {
			r.skipLocked(l, c.rv)
		}
	}
	l.changes.Notify()
	return true
}

// compact removes what every reader has passed, seals what is due, and removes the oldest blocks
// above the limit. Only the goroutine of Run calls it, so the head does not change while it is
// encoded, without the lock. After an error the buffer is empty, and readers fetch what they need.
func (l *sharedLog) compact() error {
	for {
		l.mu.Lock()
		if l.buffer.sealable() == nil {
			l.shrinkLocked()
			l.mu.Unlock()
			return nil
		}
		l.buffer.removeBefore(l.passedLocked())
		due, first := l.buffer.sealable(), l.buffer.headFirst()
		l.mu.Unlock()
		if due == nil {
			continue
		}
		sealed, err := l.codec.encode(first, due)
		l.mu.Lock()
		if err == nil {
			l.buffer.sealed(sealed)
		} else {
			l.buffer = buffer{sizes: l.buffer.sizes, first: l.buffer.next, next: l.buffer.next, removed: l.position}
		}
		l.mu.Unlock()
		if err != nil {
			return err
		}
	}
}

// passedLocked is the sequence number of the next version that a reader needs.
func (l *sharedLog) passedLocked() int64 {
	passed := l.buffer.next
	for r := range l.readers {
		if r.joined {
			passed = min(passed, r.next)
		}
	}
	return passed
}

// shrinkLocked enforces the limit, and forgets the segments of which nothing is left.
func (l *sharedLog) shrinkLocked() {
	for l.buffer.bytes() > l.maxBytes && len(l.buffer.blocks) > 0 {
		oldest := l.buffer.blocks[0]
		for r := range l.readers {
			r.evictingLocked(oldest)
		}
		l.buffer.removeBlock()
	}
	for len(l.segments) > 1 && l.segments[1].first <= l.buffer.first {
		l.segments = l.segments[1:]
	}
}

// lastLocked is the segment that grows.
func (l *sharedLog) lastLocked() segment { return l.segments[len(l.segments)-1] }

// segmentLocked returns the segment of a sequence number, and where it ends.
func (l *sharedLog) segmentLocked(seq int64) (s segment, end int64) {
	i, end := len(l.segments)-1, l.buffer.next
	for i > 0 && l.segments[i].first > seq {
		end = l.segments[i].first
		i--
	}
	return l.segments[i], end
}

// beforeLocked is the point after which a version that begins a segment, or is the oldest one, or the
// next one, is the first.
func (l *sharedLog) beforeLocked(seq int64) string {
	switch s, _ := l.segmentLocked(seq); {
	case seq == s.first:
		return s.from
	case seq == l.buffer.first:
		return l.buffer.removed
	default:
		return "" // within its segment, so a reader has come from there
	}
}

// seekLocked returns the sequence number of the first version after a point in the last segment.
func (l *sharedLog) seekLocked(rv string) (int64, error) {
	seq := max(l.lastLocked().first, l.buffer.first)
	for seq < l.buffer.next {
		versions, sealed := l.buffer.from(seq)
		if sealed != nil {
			if !newer(sealed.last, rv) {
				seq = sealed.end()
				continue
			}
			decoded, err := l.codec.decode(sealed)
			if err != nil {
				return 0, err
			}
			versions = decoded[seq-sealed.first:]
		}
		for _, v := range versions {
			if newer(v.Event.ResourceVersion, rv) {
				return seq, nil
			}
			seq++
		}
	}
	return seq, nil
}
