package history

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/eventd/eventd/internal/shares"
	"github.com/eventd/eventd/pkg/observer"
)

const (
	// maxBatch is the maximum of the limit of Read.
	maxBatch = 1000
	// aheadTimeout is how long a follower waits for a history that has not reached its place: another
	// replica may be ahead by milliseconds.
	aheadTimeout = 30 * time.Second
)

// Follower reads versions as they are added, and never waits for more: its caller decides how often it reads. One
// goroutine at a time uses it. It holds at most one run, decoded, within a limit for all of them. It belongs to its
// caller, who must close it.
type Follower struct {
	h    *History
	flow shares.Flow

	// place is the point that was read, or at which to begin until it is placed: until the first list
	// is complete.
	place  position
	placed bool
	// now: it begins with what is added next, or, if it is early, with what follows the first list.
	now, early bool
	// next is the sequence number of the next version that is neither returned nor ahead.
	next int64
	// made is when Follow was called.
	made time.Time
	// ahead are versions of a run that were decoded and not yet returned, in order: a block is decoded once,
	// however few are read at a time.
	ahead []row
	// atEnd: the last Read has read all there was.
	atEnd bool
	// met: it has been at the end of the history, which was not behind it. Before, it may have to pass over versions that
	// it has had, since they follow a place of another replica.
	met bool
}

// Follow returns a follower for a user that begins after a resourceVersion, of a Result or of Read of any replica.
// Empty is now. Its error is ErrExpired if not all that follows is kept, or ErrInvalid. Tenants have equal
// parts of the time and the memory in which old versions are decoded.
func (h *History) Follow(after, caller string) (*Follower, error) {
	f := &Follower{h: h, flow: shares.FlowOf(caller, ""), now: after == "", made: time.Now()}
	if !f.now {
		var err error
		if f.place, err = parsePosition(after); err != nil {
			return nil, err
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if f.early = h.beginning; f.now {
		f.place.epoch = h.reached.epoch
	}
	if err := f.placeLocked(); err != nil {
		return nil, err
	}
	return f, nil
}

// placeLocked finds the place at which to begin, unless the first list is still being read.
func (f *Follower) placeLocked() error {
	h := f.h
	if !f.placed && f.place.epoch != h.reached.epoch && (f.now || !h.beginning) {
		return ErrExpired
	}
	switch {
	case f.placed || h.beginning:
		return nil
	case f.now && f.early:
		f.place.rv, f.next = h.first, h.firstSeq
	case f.now:
		f.place, f.next, f.met = h.reached, h.next, true
	case f.place.rv < h.complete || f.place.before(h.store.lostAt):
		return ErrExpired
	default:
		f.next = h.seekLocked(f.place.rv)
	}
	f.placed = true
	return f.lostLocked()
}

// lostLocked is ErrExpired if the place of the follower was removed, or is of a former epoch.
func (f *Follower) lostLocked() error {
	if f.next < f.h.store.lost || f.place.epoch != f.h.reached.epoch {
		return ErrExpired
	}
	return nil
}

// seekLocked returns a sequence number at or before that of the first version after rv, which is
// neither below complete nor removed. What lies between is skipped by rv.
func (h *History) seekLocked(rv uint64) int64 {
	for _, b := range h.store.blocks {
		if b.end > h.completeSeq && (b.lastRV > rv || h.listing && b.end > h.listSeq) {
			return max(b.first, h.completeSeq)
		}
	}
	first := h.next - int64(len(h.head))
	begin := max(h.completeSeq, first)
	end := h.next
	if h.listing {
		end = h.listSeq
	}
	if begin >= end {
		return end
	}
	at, _ := slices.BinarySearchFunc(h.head[begin-first:end-first], rv, func(r row, rv uint64) int {
		if r.rv <= rv {
			return -1
		}
		return 1
	})
	return begin + int64(at)
}

// Close releases what the follower holds. It may be called again.
func (f *Follower) Close() { f.setAhead(nil) }

// Read returns the versions that follow, at most limit, and the point that is reached with them. The point is empty
// if it has not moved, and may move without a version, by deletions. It waits for its turn to decode old versions,
// and for nothing else. Its error is ErrExpired if what follows was removed, or etcd was restored; ErrBusy; or the
// cause of ctx. After ErrExpired, all later calls return it too.
func (f *Follower) Read(ctx context.Context, limit int) (versions []observer.Version, resourceVersion string, err error) {
	return f.ReadTo(ctx, limit, End)
}

// ReadTo is Read up to a place, which the follower is at when there is no more to return. Before it has begun to read
// up to there, the follower must be at a place, too.
func (f *Follower) ReadTo(ctx context.Context, limit int, end Place) (versions []observer.Version, resourceVersion string, err error) {
	limit = min(max(limit, 1), maxBatch)
	for {
		if versions = f.take(limit); len(versions) > 0 {
			f.atEnd = false
			return versions, f.place.String(), nil
		}
		before := f.place
		versions, run, err := f.readHead(limit, end)
		switch {
		case err != nil:
			return nil, "", err
		case run != nil:
			if err := f.h.budget.decode(ctx, f.flow, func() error { return f.decode(run, limit, end) }); err != nil {
				return nil, "", err
			}
		case len(versions) > 0 || f.place != before:
			return versions, f.place.String(), nil
		default:
			return nil, "", nil
		}
	}
}

// UpToDate reports whether the last Read has read all there was.
func (f *Follower) UpToDate() bool { return f.atEnd }

// readHead returns what follows of the versions that are not sealed, up to a place, or the run that has it.
func (f *Follower) readHead(limit int, to Place) (versions []observer.Version, run []*block, err error) {
	h := f.h
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := f.placeLocked(); err != nil {
		return nil, nil, err
	}
	if !f.placed {
		f.atEnd = true
		return nil, nil, nil
	}
	if err := f.lostLocked(); err != nil {
		return nil, nil, err
	}
	first := h.next - int64(len(h.head))
	if f.next < min(first, to.next) {
		return nil, h.store.runOf(f.next), nil
	}
	for end := min(h.next, to.next); f.next < end && len(versions) < limit; f.next++ {
		if r := &h.head[f.next-first]; f.pass(r.rv, r.listed) {
			versions = append(versions, r.Version)
		}
	}
	if f.next == to.next {
		f.place.rv = max(f.place.rv, to.rv)
	}
	if f.atEnd = f.next == h.next; f.atEnd {
		f.place.rv = max(f.place.rv, h.reached.rv)
		f.met = f.met || f.place == h.reached
	}
	if h.reached.rv < f.place.rv && time.Since(f.made) >= aheadTimeout {
		f.next = -1 // so it remains expired
		return nil, nil, ErrExpired
	}
	return versions, nil, nil
}

// pass moves the place over a version, and reports whether it is to be returned.
func (f *Follower) pass(rv uint64, listed bool) bool {
	if listed {
		return true
	}
	if rv <= f.place.rv {
		return false
	}
	f.place.rv = rv
	return true
}

// decode decodes what follows of a run, up to a place and as far as there is memory for it, but at least as much as
// is returned next.
func (f *Follower) decode(run []*block, limit int, to Place) error {
	size := int64(0)
	for _, b := range run {
		size += b.size
	}
	end := min(run[0].end, to.next)
	reserved := f.h.budget.ahead.AcquireUpTo(f.flow, size)
	if reserved < size {
		end = min(end, f.next+int64(limit)+(end-f.next)*reserved/size)
	}
	rows, err := f.h.codec.rows(run, f.next, end)
	used := int64(0)
	for i := range rows[:min(limit, len(rows))] {
		rows[i].bytes = 0 // they are returned at once
	}
	for i := limit; i < len(rows); i++ {
		if used+rows[i].bytes > reserved {
			rows, end = rows[:i], rows[i].seq
			break
		}
		used += rows[i].bytes
	}
	f.h.budget.ahead.Release(f.flow, reserved-used)
	if f.setAhead(rows); err == nil {
		f.next = end
	}
	return err
}

// setAhead replaces what is ahead, and releases its memory.
func (f *Follower) setAhead(rows []row) {
	f.release(f.ahead)
	f.ahead = rows
}

func (f *Follower) release(rows []row) {
	bytes := int64(0)
	for i := range rows {
		bytes += rows[i].bytes
	}
	f.h.budget.ahead.Release(f.flow, bytes)
}

// take returns the next versions of those ahead, at most limit.
func (f *Follower) take(limit int) (versions []observer.Version) {
	n := 0
	for ; n < len(f.ahead) && len(versions) < limit; n++ {
		if r := &f.ahead[n]; f.pass(r.rv, r.listed) {
			versions = append(versions, r.Version)
		}
	}
	f.release(f.ahead[:n])
	clear(f.ahead[:n]) // the array keeps nothing alive
	if f.ahead = f.ahead[n:]; len(f.ahead) == 0 {
		f.ahead = nil
	}
	return versions
}

// rows returns the versions of a run from a sequence number on, up to another one, in the order in which they
// were added.
func (c *codec) rows(run []*block, begin, end int64) (rows []row, err error) {
	for _, b := range run {
		err := c.decode(b, func(seq int64, _ uint32) bool { return begin <= seq && seq < end }, func(r *row) { rows = append(rows, *r) })
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(rows, func(a, b row) int { return cmp.Compare(a.seq, b.seq) })
	return rows, nil
}
