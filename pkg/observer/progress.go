package observer

import (
	"context"
	"time"
)

// progress is where a reader is. A reader follows the shared log from the sequence number next on.
// Before that come the versions that it has fetched itself, if it began at a point that the log does
// not have, or lost its place. All methods need the lock of the shared log.
type progress struct {
	// epoch and position are the point up to which everything was returned, fetched, or is part of
	// list.
	epoch    int64
	position string
	// joined: next is valid, and what is from there on in the shared log is pending.
	joined bool
	next   int64
	// behind: versions between position and next are in no buffer. They are fetched by a watch.
	behind bool
	// list is the list that is being fetched, if any.
	list *listing
	// own is how many fetched versions are pending, and oldest is when the first was fetched.
	own    int64
	oldest time.Time
	// done is how many versions were returned, or reported as superseded.
	done int64
	// missed: versions left the shared log unread, of which the first was observed at missedAt.
	missed   bool
	missedAt time.Time
	// notice is for the next batch.
	notice notice
	// movedAt is when the last cursor was returned.
	movedAt time.Time
}

// notice has the fields of a Batch that need no entries.
type notice struct {
	cursor     Cursor
	superseded int64
	gap        bool
	restored   bool
}

// listing is the state of a list.
type listing struct {
	// floor is the position before it: only newer versions are returned.
	floor string
	// token continues it. It is empty before the first page.
	token string
	// smaller is how often its pages were halved, since one was too large.
	smaller int
	// expired: the answer to the last request was 410.
	expired bool
	// gap: it replaces a watch that could not be resumed.
	gap bool
}

func (p *progress) statusLocked(l *sharedLog) ReaderStatus {
	s := ReaderStatus{Pending: p.own + p.notice.superseded}
	var oldest time.Time
	if p.joined {
		s.Pending += l.buffer.next - p.next
		if p.next >= l.buffer.first && p.next < l.buffer.next {
			oldest = l.buffer.observed(p.next)
		}
	}
	if p.own > 0 {
		oldest = p.oldest
	}
	if p.missed {
		oldest = p.missedAt
	}
	s.Observed = p.done + s.Pending
	if !oldest.IsZero() {
		s.OldestPending = max(time.Since(oldest), 0)
	}
	return s
}

// beginLocked places a reader after the first connection. current is what the shared watch has
// reached, or is about to.
func (p *progress) beginLocked(l *sharedLog, current string) {
	switch {
	case p.joined || p.list != nil || p.position != "" && p.epoch < l.epoch:
	case p.position == "": // without a cursor: from now on
		p.epoch, p.position = l.epoch, current
		p.joined, p.next = true, l.buffer.next
		p.notice.cursor = Cursor{p.epoch, current}
	default:
		p.joinLocked(l)
	}
}

// joinLocked places the reader at its position in the last segment, or before all of it.
func (p *progress) joinLocked(l *sharedLog) {
	next, err := l.seekLocked(p.position)
	if err != nil {
		p.abandonLocked(l)
		return
	}
	if p.joined { // a list has what it does not get from the log any more
		next = max(next, p.next)
		p.notice.superseded += next - p.next
	}
	p.joined, p.next = true, next
	p.behind = newer(l.beforeLocked(next), p.position)
}

// abandonLocked passes over the shared log, of which a block cannot be decoded. What is stored of it
// is fetched.
func (p *progress) abandonLocked(l *sharedLog) {
	if p.joined {
		p.notice.superseded += l.buffer.next - p.next
	}
	l.cutLocked(l.position)
	p.joined, p.next, p.behind = true, l.buffer.next, true
}

// skipLocked passes over a version that was added to the shared log last, if a list has had it or a
// later one. Of another epoch, no position says so.
func (p *progress) skipLocked(l *sharedLog, rv string) {
	if next := l.buffer.next; p.joined && p.epoch == l.epoch && p.next == next-1 && !newer(rv, p.position) {
		p.next = next
	}
}

// evictingLocked is called before a block is removed that the reader may not have read.
func (p *progress) evictingLocked(b *block) {
	if p.joined && p.next < b.end() && !p.missed {
		p.missed, p.missedAt = true, time.Unix(0, b.times[max(p.next-b.first, 0)])
	}
}

// catchUpLocked finds out what lies between position and next.
func (p *progress) catchUpLocked(l *sharedLog) {
	if p.next < l.buffer.first {
		p.notice.superseded += l.buffer.first - p.next
		p.next, p.behind = l.buffer.first, true
		if !p.missed {
			p.missed, p.missedAt = true, time.Now()
		}
	}
	if s, _ := l.segmentLocked(p.next); p.next == s.first && (p.epoch != s.epoch || newer(s.from, p.position)) {
		p.behind = true
	}
	if !p.behind || p.epoch == l.epoch && !newer(l.beforeLocked(p.next), p.position) {
		p.behind, p.missed = false, false // it may have read a block as it was removed
	}
}

// restoreLocked begins anew in another epoch.
func (p *progress) restoreLocked(l *sharedLog) {
	if p.joined {
		p.notice.superseded += l.buffer.next - p.next
	}
	p.epoch, p.position = l.epoch, ""
	p.joined, p.behind, p.missed = false, false, false
	p.list = &listing{}
	p.notice.restored = true
}

// plan is what Next does.
type plan struct {
	action action
	// changed and after end a wait. after is 0 if only a change does.
	changed <-chan struct{}
	after   time.Duration
}

type action int

const (
	waitForChange action = iota
	returnNotice
	returnFetched
	returnShared
	fetchPage
	fetchChanges
)

// call names the request of an action, or is empty.
func (a action) call() string {
	switch a {
	case fetchPage:
		return callList
	case fetchChanges:
		return callReread
	default:
		return ""
	}
}

// plan decides what Next does.
func (r *Reader) plan() plan {
	l := r.o.log
	l.mu.Lock()
	defer l.mu.Unlock()
	return r.planLocked(l)
}

func (p *progress) planLocked(l *sharedLog) plan {
	if len(l.segments) == 0 {
		return plan{changed: l.changes.Changed()}
	}
	if p.own > 0 {
		return plan{action: returnFetched}
	}
	if p.joined && p.list == nil {
		p.catchUpLocked(l)
	}
	if p.epoch < l.epoch && (p.list != nil || p.behind || !p.joined) {
		p.restoreLocked(l)
	}
	switch {
	case p.notice != notice{}:
		return plan{action: returnNotice}
	case p.list != nil:
		return plan{action: fetchPage}
	case p.behind:
		return plan{action: fetchChanges}
	}
	if _, end := l.segmentLocked(p.next); p.next < end {
		return plan{action: returnShared}
	}
	return p.idleLocked(l)
}

// idleLocked waits for a version. Meanwhile the position may move, by deletions.
func (p *progress) idleLocked(l *sharedLog) plan {
	wait := plan{changed: l.changes.Changed()}
	if newer(l.position, p.position) {
		wait.after = cursorInterval - time.Since(p.movedAt)
		if wait.after <= 0 {
			p.position = l.position
			p.notice.cursor = Cursor{p.epoch, p.position}
			return plan{action: returnNotice}
		}
	}
	return wait
}

// returnedLocked moves over entries of the shared log, and returns the cursor behind them.
func (p *progress) returnedLocked(l *sharedLog, entries []Entry) Cursor {
	n := int64(len(entries))
	p.next += n
	p.done += n
	p.position = entries[n-1].Cursor.ResourceVersion
	if p.next == l.buffer.next && p.next > l.lastLocked().first {
		p.position = newest(l.position, p.position) // deletions after the last version
	}
	p.movedAt = time.Now()
	return Cursor{p.epoch, p.position}
}

// withNotice adds what else is to be said to a batch.
func (r *Reader) withNotice(b Batch) Batch {
	l := r.o.log
	l.mu.Lock()
	defer l.mu.Unlock()
	n := r.notice
	r.notice = notice{}
	b.Superseded, b.Gap, b.Restored = n.superseded, n.gap, n.restored
	if n.cursor != (Cursor{}) && len(b.Entries) == 0 {
		b.Cursor = n.cursor
		r.movedAt = time.Now()
	}
	r.done += n.superseded
	return b
}

// wait returns when the plan has to be made again.
func (w plan) wait(ctx context.Context) {
	var timeout <-chan time.Time
	if w.after > 0 {
		timer := time.NewTimer(w.after)
		defer timer.Stop()
		timeout = timer.C
	}
	select {
	case <-w.changed:
	case <-timeout:
	case <-ctx.Done():
	}
}
