package observer

import (
	"context"
	"errors"
	"time"

	"github.com/eventd/eventd/internal/notify"
	"github.com/eventd/eventd/internal/sleep"
)

const (
	// cursorInterval is the minimum time between two batches that have nothing but a cursor.
	cursorInterval = 5 * time.Second
	// batchBytes is the size of the Events at which a batch ends, in memory.
	batchBytes = 1 << 20
)

// ErrClosed is the error of Next after Close.
var ErrClosed = errors.New("the reader is closed")

// Reader returns the stored versions in order, from its cursor on. One goroutine at a time calls
// Next; Status and Close may be called by any. It belongs to its caller, who must close it.
type Reader struct {
	o       *Observer
	client  *client
	closed  context.Context
	close   context.CancelFunc
	backoff backoff

	progress               // guarded by o.log.mu
	last     *ReaderStatus // when it was closed, or nil; guarded by o.log.mu

	// The fields below belong to the goroutine of Next.

	// fetched has what the reader has read from the apiserver itself. It is returned before what is
	// in the shared log. inList: it is of a list.
	fetched []Version
	inList  bool
	// decoded are the versions of a block that was read last.
	decoded  []Version
	decodedB *block
}

// Reader returns a reader. Each one keeps a part of the buffer until it has read it, so one that is
// no longer read must be closed. A cursor that is not valid counts as Oldest.
func (o *Observer) Reader(start Start) *Reader {
	r := &Reader{o: o, client: newClient(o.client.source)}
	r.closed, r.close = context.WithCancel(context.Background())
	l := o.log
	l.mu.Lock()
	defer l.mu.Unlock()
	l.readers[r] = struct{}{}
	r.epoch, r.position = start.Cursor.Epoch, start.Cursor.ResourceVersion
	if l.epoch < r.epoch { // all other readers have yet to learn of it
		l.epoch = r.epoch
		if len(l.segments) > 0 {
			l.cutLocked(l.position)
			notify.Wake(l.recheck)
		} else {
			l.position, l.seen = "", ""
		}
	}
	switch {
	case start.Oldest || r.position != "" && !valid(r.position):
		r.epoch, r.position, r.list = l.epoch, "", &listing{}
	case r.epoch == l.epoch && newer(r.position, l.seen):
		// Either nobody has seen it yet, or it is of a history before a restore.
		l.seen = r.position
		notify.Wake(l.recheck)
	}
	if len(l.segments) > 0 {
		r.beginLocked(l, newest(l.position, l.seen))
	}
	return r
}

// Close ends a call of Next, with ErrClosed, and drops what is pending. It may be called again.
func (r *Reader) Close() {
	r.close()
	l := r.o.log
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.readers, r)
	if r.last == nil {
		last := r.statusLocked(l)
		last.OldestPending = 0
		r.last = &last
	}
}

// ReaderStatus is how far a reader is. At any moment
//
//	Observed = entries returned + Batch.Superseded returned + Pending
type ReaderStatus struct {
	// Observed is how many versions were observed for the reader. It never decreases.
	Observed int64
	// Pending is how many of them were neither returned, nor reported as superseded.
	Pending int64
	// OldestPending is the age of the oldest pending version, or 0. While a reader reads again what
	// had left the buffer, it is the age of the first version that has.
	OldestPending time.Duration
}

// Status returns how far the reader is, or was when it was closed.
func (r *Reader) Status() ReaderStatus {
	l := r.o.log
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.last != nil {
		return *r.last
	}
	return r.statusLocked(l)
}

// Next returns the next batch of at most limit entries. It waits until there is one. Its error is
// the cause of ctx, or ErrClosed. What fails otherwise is retried, with backoff, and is in the
// Status of the Observer. Nobody waits for the caller: what it does not read in time leaves the
// buffer, and is read from the apiserver again.
func (r *Reader) Next(ctx context.Context, limit int) (Batch, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(r.closed, func() { cancel(ErrClosed) })()
	for ctx.Err() == nil && r.closed.Err() == nil {
		do := r.plan()
		var err error
		switch do.action {
		case returnNotice:
			return r.withNotice(Batch{}), nil
		case returnFetched:
			return r.withNotice(r.takeFetched(limit)), nil
		case returnShared:
			if b := r.takeShared(ctx, limit); len(b.Entries) > 0 {
				return r.withNotice(b), nil
			}
		case waitForChange:
			do.wait(ctx)
		case fetchPage:
			err = r.fetchPage(ctx)
		case fetchChanges:
			err = r.fetchChanges(ctx)
		}
		if err != nil && ctx.Err() == nil {
			r.o.failed(ctx, do.action.call(), err)
			_ = sleep.For(ctx, r.backoff.next(err))
		} else if do.action.call() != "" {
			r.backoff.next(nil)
		}
	}
	if r.closed.Err() != nil {
		return Batch{}, ErrClosed
	}
	return Batch{}, context.Cause(ctx)
}

// takeShared returns what is in the shared log, or nothing if it has left it.
func (r *Reader) takeShared(ctx context.Context, limit int) Batch {
	l := r.o.log
	l.mu.Lock()
	epoch, seq := r.epoch, r.next
	_, end := l.segmentLocked(seq) // a batch must not go beyond: something is missing there
	l.mu.Unlock()
	var entries []Entry
	for bytes := int64(0); len(entries) < max(limit, 1) && bytes < batchBytes; {
		run, err := r.run(seq, end)
		if err != nil {
			r.o.failed(ctx, callBuffer, err)
			l.mu.Lock()
			r.abandonLocked(l)
			l.mu.Unlock()
			return Batch{}
		}
		if len(run) == 0 {
			break
		}
		for _, v := range run {
			entries = append(entries, Entry{v, Cursor{epoch, v.Event.ResourceVersion}})
			seq++
			if bytes += sizeOf(v); len(entries) >= limit || bytes >= batchBytes {
				break
			}
		}
	}
	if len(entries) == 0 {
		return Batch{}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return Batch{Entries: entries, Cursor: r.returnedLocked(l, entries)}
}

// run returns versions of the shared log from a sequence number on, up to another one. There are
// none if it has left the log.
func (r *Reader) run(seq, end int64) ([]Version, error) {
	l := r.o.log
	l.mu.Lock()
	if seq < l.buffer.first || seq >= end {
		l.mu.Unlock()
		return nil, nil
	}
	versions, sealed := l.buffer.from(seq)
	l.mu.Unlock()
	versions, err := r.decode(versions, sealed, seq)
	return versions[:min(int64(len(versions)), end-seq)], err
}

// decode returns the versions of a run from a sequence number on. The last block is kept, as a batch
// may end within it.
func (r *Reader) decode(versions []Version, sealed *block, seq int64) ([]Version, error) {
	if sealed == nil {
		r.decoded, r.decodedB = nil, nil
		return versions, nil
	}
	if r.decodedB != sealed {
		decoded, err := r.o.log.codec.decode(sealed)
		if err != nil {
			return nil, err
		}
		r.decoded, r.decodedB = decoded, sealed
	}
	return r.decoded[seq-sealed.first:], nil
}

// takeFetched returns what the reader has read from the apiserver itself.
func (r *Reader) takeFetched(limit int) Batch {
	n, bytes := 0, int64(0)
	for n < min(max(limit, 1), len(r.fetched)) && bytes < batchBytes {
		bytes += sizeOf(r.fetched[n])
		n++
	}
	entries := make([]Entry, n)
	l := r.o.log
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, v := range r.fetched[:n] {
		entries[i].Version = v
		if !r.inList {
			entries[i].Cursor = Cursor{r.epoch, v.Event.ResourceVersion}
		}
	}
	if r.fetched = r.fetched[n:]; len(r.fetched) == 0 {
		r.fetched = nil // with its array
	} else {
		r.oldest = r.fetched[0].Observed
	}
	r.own -= int64(n)
	r.done += int64(n)
	b := Batch{Entries: entries}
	switch {
	case r.own == 0 && r.list == nil:
		b.Cursor = Cursor{r.epoch, r.position}
		entries[n-1].Cursor = b.Cursor
		r.movedAt = time.Now()
	case !r.inList:
		b.Cursor = entries[n-1].Cursor
	}
	return b
}
