package history

import (
	"context"
	"errors"
	"time"

	"github.com/eventd/eventd/pkg/observer"
)

// Source is an Observer.
type Source interface {
	Reader(start observer.Start) *observer.Reader
	Status() observer.Status
}

// batch is how many versions are read at once.
const batch = 256

// Run fills the history with what a source observes, until ctx ends, and returns nil then. It begins
// with what is stored; when it is called again, after it has returned, with what follows. It is the
// only one that adds to the history meanwhile. An error means that something other has closed the reader.
func (h *History) Run(ctx context.Context, source Source) error {
	h.setSource(source)
	defer h.setSource(nil)
	r := source.Reader(h.begin())
	defer r.Close()
	for {
		b, err := r.Next(ctx, batch)
		if err != nil {
			h.waitSealed(context.WithoutCancel(ctx), h.sealingNow()) // a moment
			if ctx.Err() != nil && !errors.Is(err, observer.ErrClosed) {
				return nil
			}
			return err
		}
		h.addBatch(b)
		// The observer buffers what comes meanwhile.
		h.waitSealed(ctx, h.sealed())
	}
}

func (h *History) setSource(s Source) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.source = s
}

func (h *History) sealingNow() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.sealing
}

// waitSealed waits until a channel is closed, if there is one.
func (h *History) waitSealed(ctx context.Context, sealed <-chan struct{}) {
	if sealed == nil {
		return
	}
	select {
	case <-sealed:
	case <-ctx.Done():
	}
}

// begin returns where to begin. What was not read to the end is read again.
func (h *History) begin() observer.Start {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.beginning {
		return observer.Start{Cursor: observer.Cursor{Epoch: h.reached.epoch, ResourceVersion: formatRV(h.reached.rv)}}
	}
	h.listLocked()
	return observer.Start{Oldest: true, Cursor: observer.Cursor{Epoch: h.reached.epoch}}
}

// listLocked notes that what follows is a list.
func (h *History) listLocked() {
	if !h.listing {
		h.listing, h.listSeq = true, h.next
	}
}

// addBatch adds what a reader has returned.
func (h *History) addBatch(b observer.Batch) {
	rows := make([]row, len(b.Entries))
	valid := make([]bool, len(b.Entries))
	for i, e := range b.Entries {
		rows[i], valid[i] = newRow(e.Version, e.Cursor == observer.Cursor{})
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if b.Restored {
		h.restoredLocked(h.reached.epoch + 1)
	}
	if b.Gap {
		h.listLocked()
	}
	for i, e := range b.Entries {
		if e.Cursor == (observer.Cursor{}) {
			h.listLocked()
		}
		rows[i].listed = h.listing // the last entry of a list has a cursor
		h.addLocked(rows[i], valid[i])
		h.reachedLocked(e.Cursor)
	}
	h.reachedLocked(b.Cursor)
	h.addedLocked()
}

// restoredLocked begins a new epoch. Followers of the former one have lost their place.
func (h *History) restoredLocked(epoch int64) {
	h.reached = position{epoch: epoch}
	h.beginning, h.listing = true, false
	h.complete, h.completeSeq = 0, h.next
	h.listLocked()
}

// reachedLocked moves to a cursor, which ends a list. It does nothing without one.
func (h *History) reachedLocked(c observer.Cursor) {
	rv, err := parseRV(c.ResourceVersion)
	if err != nil {
		return
	}
	if c.Epoch > h.reached.epoch { // as another reader has learnt
		h.reached = position{epoch: c.Epoch}
	}
	if h.listing {
		h.completeLocked(rv)
		if h.began == 0 {
			h.began = time.Now().UnixMicro()
		}
	}
	h.reached.rv = max(h.reached.rv, rv)
}
