package history

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/eventd/eventd/internal/eventsize"
	"github.com/eventd/eventd/internal/shares"
	"github.com/eventd/eventd/pkg/observer"
)

const (
	// maxBatch is the maximum of the limit of Next.
	maxBatch = 1000
	// batchInterval is the time between two batches of a follower that has read all. So a storm costs each
	// follower 4 wakeups per second, not one for each version. Followers do not wake at the same time.
	batchInterval = 250 * time.Millisecond
	// aheadTimeout is how long a follower waits for a history that has not reached its place: another
	// replica may be ahead by milliseconds.
	aheadTimeout = 30 * time.Second
)

// Follower reads versions as they are added. One goroutine at a time calls Next; Close may be called by
// any. It holds at most one run, decoded, within a limit for all of them. It belongs to its caller, who must
// close it.
type Follower struct {
	h      *History
	flow   shares.Flow
	closed context.Context
	close  context.CancelFunc

	// place is the point that was read, or at which to begin until it is placed: until the first list
	// is complete.
	place  position
	placed bool
	// now: it begins with what is added next, or, if it is early, with what follows the first list.
	now, early bool
	// next is the sequence number of the next version that is neither returned nor ahead.
	next int64
	// made is when Follow was called. At turn, and each batchInterval after it, Next reads what is at the end;
	// again: it has done so.
	made, turn time.Time
	again      bool

	mu sync.Mutex
	// ahead are versions of a run that were decoded and not yet returned, in order: a block is decoded once,
	// however few are read at a time.
	ahead []sealedRow
}

// Follow returns a follower that begins after a resourceVersion, of a Result or of Next of any replica.
// Empty is now. Its error is ErrExpired if not all that follows is kept, or ErrInvalid. Tenants have equal
// parts of the time and the memory in which old versions are decoded.
func (h *History) Follow(after, tenant string) (*Follower, error) {
	f := &Follower{h: h, flow: shares.Flow{Tenant: tenant}, now: after == "", made: time.Now()}
	f.turn = f.made.Add(-rand.N(batchInterval))
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
	f.closed, f.close = context.WithCancel(context.Background())
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
		f.place, f.next = h.reached, h.next
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

// Close ends a call of Next, with ErrClosed. It may be called again.
func (f *Follower) Close() {
	f.close()
	f.setAhead(nil)
}

// Next returns the versions that follow, at most limit, and the point that is reached with them. It
// waits until there are any, or until the point has moved without one, by deletions. Its error is
// ErrExpired if what follows was removed, or etcd was restored; the cause of ctx; or ErrClosed. After
// ErrExpired, all later calls return it too.
func (f *Follower) Next(ctx context.Context, limit int) (versions []observer.Version, resourceVersion string, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(f.closed, func() { cancel(ErrClosed) })()
	limit = min(max(limit, 1), maxBatch)
	for ctx.Err() == nil {
		if versions = f.take(limit); len(versions) > 0 {
			return versions, f.place.String(), nil
		}
		if f.again {
			wait(ctx, nil, batchInterval-time.Since(f.turn)%batchInterval)
			f.again = false
		}
		p, err := f.plan(limit)
		switch {
		case err != nil:
			return nil, "", err
		case p.run != nil:
			if err := f.h.budget.decode(ctx, f.flow.Tenant, func() error { return f.read(p.run, limit) }); err != nil {
				return nil, "", err
			}
			continue
		case !p.moved:
			wait(ctx, p.changed, p.after)
			f.again = f.placed
			continue
		}
		return p.versions, f.place.String(), nil
	}
	return nil, "", context.Cause(ctx)
}

// UpToDate reports whether Next waits for what is not there yet. It is called by the goroutine that calls Next.
func (f *Follower) UpToDate() bool { return f.again && len(f.ahead) == 0 }

// plan is what Next does: return versions, or that the place has moved; read a run; or wait for a
// change, or for some time.
type plan struct {
	versions []observer.Version
	moved    bool
	run      []*block
	changed  <-chan struct{}
	after    time.Duration
}

func (f *Follower) plan(limit int) (p plan, err error) {
	h := f.h
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := f.placeLocked(); err != nil {
		return p, err
	}
	if !f.placed {
		return plan{changed: h.changeLocked()}, nil
	}
	if err := f.lostLocked(); err != nil {
		return p, err
	}
	first := h.next - int64(len(h.head))
	if f.next < first {
		return plan{run: h.store.runOf(f.next)}, nil
	}
	before := f.place
	for ; f.next < h.next && len(p.versions) < limit; f.next++ {
		if r := &h.head[f.next-first]; f.pass(r.rv, r.listed) {
			p.versions = append(p.versions, r.Version)
		}
	}
	if f.next == h.next {
		f.place.rv = max(f.place.rv, h.reached.rv)
	}
	if p.moved = len(p.versions) > 0 || f.place != before; p.moved {
		f.again = f.next == h.next
		return p, nil
	}
	p.changed = h.changeLocked()
	if h.reached.rv < f.place.rv {
		if p.after = aheadTimeout - time.Since(f.made); p.after <= 0 {
			f.next = -1 // so it remains expired
			return p, ErrExpired
		}
	}
	return p, nil
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

// read decodes what follows of a run, as far as there is memory for it, but at least as much as is returned
// next.
func (f *Follower) read(run []*block, limit int) error {
	size := int64(0)
	for _, b := range run {
		size += b.size
	}
	end := run[0].end
	reserved := f.h.budget.ahead.AcquireUpTo(f.flow, size)
	if reserved < size {
		end = min(end, f.next+int64(limit)+(end-f.next)*reserved/size)
	}
	rows, err := f.h.codec.rows(run, f.next, end)
	used := int64(0)
	for i := limit; i < len(rows); i++ {
		bytes := eventsize.Of(rows[i].Event) + rowBytes
		if used+bytes > reserved {
			rows, end = rows[:i], rows[i].seq
			break
		}
		rows[i].reserved = bytes
		used += bytes
	}
	f.h.budget.ahead.Release(f.flow, reserved-used)
	if f.setAhead(rows); err == nil {
		f.next = end
	}
	return err
}

// setAhead replaces what is ahead, and releases its memory. It is nothing after Close.
func (f *Follower) setAhead(rows []sealedRow) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.releaseLocked(f.ahead)
	if f.ahead = rows; f.closed.Err() != nil {
		f.releaseLocked(rows)
		f.ahead = nil
	}
}

func (f *Follower) releaseLocked(rows []sealedRow) {
	bytes := int64(0)
	for i := range rows {
		bytes += rows[i].reserved
	}
	f.h.budget.ahead.Release(f.flow, bytes)
}

// take returns the next versions of those ahead, at most limit.
func (f *Follower) take(limit int) (versions []observer.Version) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for ; n < len(f.ahead) && len(versions) < limit; n++ {
		if r := &f.ahead[n]; f.pass(r.rv, r.listed) {
			versions = append(versions, r.Version)
		}
	}
	f.releaseLocked(f.ahead[:n])
	clear(f.ahead[:n]) // the array keeps nothing alive
	if f.ahead = f.ahead[n:]; len(f.ahead) == 0 {
		f.ahead = nil
	}
	return versions
}

// sealedRow is a version of a block.
type sealedRow struct {
	observer.Version
	seq    int64
	rv     uint64
	listed bool
	// reserved is the memory of the version while it is ahead.
	reserved int64
}

// rows returns the versions of a run from a sequence number on, up to another one, in the order in which they
// were added.
func (c *codec) rows(run []*block, begin, end int64) (rows []sealedRow, err error) {
	for _, b := range run {
		if rows, err = c.appendRows(rows, b, begin, end); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(rows, func(a, b sealedRow) int { return cmp.Compare(a.seq, b.seq) })
	return rows, nil
}

// appendRows appends the versions of a block from a sequence number on, up to another one.
func (c *codec) appendRows(rows []sealedRow, b *block, begin, end int64) ([]sealedRow, error) {
	v := c.view(b)
	defer v.release()
	if err := v.decode(rowsFrame); err != nil {
		return nil, err
	}
	for _, i := range v.order {
		row := int(i)
		seq := v.seqs[row]
		if seq < begin || seq >= end {
			continue
		}
		if err := errors.Join(v.decode(objectsFrame), v.decode(textsFrame)); err != nil {
			return nil, err
		}
		object, event := b.indexOf(row)
		version, err := v.version(object, event, row)
		if err != nil {
			return nil, err
		}
		rows = append(rows, sealedRow{Version: version, seq: seq, rv: v.rvs[row], listed: v.listed[row]})
	}
	return rows, nil
}

// wait returns after a change, after some time if it is not 0, or when ctx ends.
func wait(ctx context.Context, changed <-chan struct{}, after time.Duration) {
	var timeout <-chan time.Time
	if after > 0 {
		timer := time.NewTimer(after)
		defer timer.Stop()
		timeout = timer.C
	}
	select {
	case <-changed:
	case <-timeout:
	case <-ctx.Done():
	}
}
