package replication

import "github.com/eventd/eventd/pkg/sink/internal/counter"

// incoming is the stream from a contributor that this process follows.
type incoming struct {
	stage
	complete bool // the mirror is that of the holding
	closed   bool
}

// open opens the stream from a contributor. What is held of it stays if there is no memory for the
// snapshot in its place.
func (h *Holdings) open(c counter.Contributor, snapshotBytes int64) (*incoming, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if of := h.of[c]; of != nil && of.open {
		return nil, errOpen
	}
	if h.bytes-h.bytesOf(c)+snapshotBytes > h.max {
		return nil, errHoldingsFull
	}
	of := h.get(c)
	of.open = true
	h.changes.Notify()
	return &incoming{stage: stage{h, c, make(Mirror)}}, nil
}

// bytesOf returns the memory of what is held of a contributor. The mutex must be held.
func (h *Holdings) bytesOf(c counter.Contributor) (n int64) {
	if of := h.of[c]; of != nil {
		for _, s := range of.Series {
			n += s.bytes
		}
	}
	return n
}

// apply applies a batch. What was held before stays until the snapshot is complete (rule Whole),
// which then replaces it (rule Replace), or until there is no memory for both.
func (in *incoming) apply(b *Batch) error {
	h := in.of
	h.mu.Lock()
	defer h.mu.Unlock()
	if in.closed {
		return errSessionOver
	}
	err := in.stage.apply(b.Changes, b.Snapshot)
	if err == errHoldingsFull && in.dropFormer() {
		err = in.stage.apply(b.Changes, b.Snapshot)
	}
	if err != nil {
		return err
	}
	if !b.Complete {
		return nil
	}
	of := h.get(in.contributor)
	if !in.complete {
		in.complete = true
		h.release(of.Series)
		of.Series = in.mirror
	}
	of.Position, of.UpTo = b.Position, b.UpTo
	return nil
}

// dropFormer drops what was held of the contributor before this stream, if that is not complete. The
// contributor lives, and sends it again. It returns false if nothing is held of it.
func (in *incoming) dropFormer() bool {
	of := in.of.of[in.contributor]
	if in.complete || len(of.Series) == 0 {
		return false
	}
	in.of.release(of.Series)
	of.Holding = Holding{Contributor: in.contributor} // at position 0: nothing is handed over
	return true
}

// close closes the stream. What is held does not change until another one is opened.
func (in *incoming) close() {
	h := in.of
	h.mu.Lock()
	defer h.mu.Unlock()
	if in.closed {
		return
	}
	in.closed = true
	if !in.complete {
		in.discard()
	}
	if of := h.get(in.contributor); of.Position == 0 {
		delete(h.of, in.contributor)
	} else {
		of.open = false
	}
	h.dropEmpty()
	h.changes.Notify()
}

// arrival is a handover that arrives.
type arrival struct {
	stage
	position uint64
	ignored  bool // it will not be kept, or there is no memory for it
}

// receive begins to receive a handover. One that will not be kept takes no memory, which streams need.
func (h *Holdings) receive(m Mark) *arrival {
	h.mu.Lock()
	defer h.mu.Unlock()
	of := h.of[m.Contributor]
	return &arrival{
		stage: stage{h, m.Contributor, make(Mirror)}, position: m.Position,
		ignored: of != nil && (of.open || of.Position >= m.Position),
	}
}

// add adds a part.
func (a *arrival) add(part *handover) error {
	a.of.mu.Lock()
	defer a.of.mu.Unlock()
	switch {
	case part.Contributor != a.contributor || part.Position != a.position || part.Position == 0:
		return errOtherHandover
	case a.ignored:
		return nil
	}
	err := a.apply(nil, part.Series)
	if err == errHoldingsFull {
		a.stage.discard()
		a.ignored, err = true, nil
	}
	return err
}

// keep adds the holding that has arrived, unless this process holds a newer one. It returns false
// if it must be handed over again later: while a stream from the contributor is open (rule Ended),
// or when there was no memory.
func (a *arrival) keep(upTo uint64) bool {
	h := a.of
	h.mu.Lock()
	defer h.mu.Unlock()
	of := h.of[a.contributor]
	switch {
	case of != nil && of.open:
		a.stage.discard()
		return false
	case of != nil && of.Position >= a.position:
		a.stage.discard()
		return true
	case a.ignored:
		return false
	}
	of = h.get(a.contributor)
	h.release(of.Series)
	of.Position, of.UpTo, of.Series = a.position, upTo, a.mirror
	h.dropEmpty()
	h.changes.Notify()
	return true
}

// discard drops what has arrived.
func (a *arrival) discard() {
	a.of.mu.Lock()
	defer a.of.mu.Unlock()
	a.stage.discard()
}
