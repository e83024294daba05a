package replication

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/eventd/eventd/internal/notify"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/counter"
)

// Holdings are what this process holds of other sinks. It is safe for concurrent use.
type Holdings struct {
	mu          sync.Mutex
	max, bytes  int64
	occurrences int64
	of          map[counter.Contributor]*holding
	now         uint64          // counts changes
	changes     notify.Notifier // which contributors are held or have open streams
}

// holding is what is held of one contributor.
type holding struct {
	Holding
	open    bool   // a stream from the contributor is
	changed uint64 // Holdings.now
	// acceptedOver is an open session over which a leader has accepted it, nil if there is none.
	acceptedOver *follower
}

// Holding is what is held of a contributor at a position. UpTo is its last sequence at that. It
// does not change while no stream from the contributor is open.
type Holding struct {
	Contributor    counter.Contributor
	Position, UpTo uint64
	Series         Mirror
}

// Mirror is what is held, by series.
type Mirror map[occurrence.Key]*HeldSeries

// HeldSeries is what is held of one series. It does not change.
type HeldSeries struct {
	held          *counter.Held
	bytes, weight int64
}

// Clone returns a copy of the map. The series do not change.
func (m Mirror) Clone() Mirror { return maps.Clone(m) }

// Pending returns what is held, as followers and leaders exchange it.
func (s *HeldSeries) Pending() PendingSeries {
	series := s.held.Series()
	return PendingSeries{&series, s.held.Records()}
}

// NewHoldings returns empty Holdings with a limit.
func NewHoldings(maxBytes int64) *Holdings {
	return &Holdings{max: maxBytes, of: make(map[counter.Contributor]*holding)}
}

// Usage returns the weight of what is held, and its memory.
func (h *Holdings) Usage() (occurrences, bytes int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.occurrences, h.bytes
}

// Changed returns a channel that is closed at the next change of which contributors are held or
// have open streams.
func (h *Holdings) Changed() <-chan struct{} { return h.changes.Changed() }

// Ended returns what is held of the contributors from which no stream is open, the one that
// changed last at the end.
func (h *Holdings) Ended() (out []Holding) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, of := range h.sorted() {
		if !of.open {
			out = append(out, of.Holding)
		}
	}
	return out
}

// IsOpen reports whether a stream from a contributor is open.
func (h *Holdings) IsOpen(c counter.Contributor) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	of := h.of[c]
	return of != nil && of.open
}

func (h *Holdings) sorted() []*holding {
	return slices.SortedFunc(maps.Values(h.of), func(a, b *holding) int { return cmp.Compare(a.changed, b.changed) })
}

// Release drops what is held of a contributor up to a position, since all of it has settled (rule
// Keep). The position stays, so that nobody adopts an earlier one (rule Empty).
func (h *Holdings) Release(c counter.Contributor, position uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if of := h.of[c]; of != nil && !of.open && of.Position <= position && len(of.Series) > 0 {
		h.release(of.Series)
		of.Series = nil
		h.dropEmpty()
		h.changes.Notify()
	}
}

// accepted records that a leader has accepted a handover, and keeps it while its session is open.
func (h *Holdings) accepted(m Mark, over *follower) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if of := h.of[m.Contributor]; of != nil && of.Position == m.Position {
		of.acceptedOver = over
		h.changes.Notify()
	}
}

// sessionEnded records that a leader may have gone, with what it has accepted.
func (h *Holdings) sessionEnded(over *follower) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, of := range h.of {
		if of.acceptedOver == over {
			of.acceptedOver = nil
		}
	}
}

// AwaitHandover returns nil when each holding is of a contributor from which a stream is open, or
// accepted by a leader with which a session is. Otherwise it returns the error of the context when
// that ends.
func (h *Holdings) AwaitHandover(ctx context.Context) error {
	return h.changes.Await(ctx, h.isHandedOver)
}

func (h *Holdings) isHandedOver() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, of := range h.of {
		if !of.open && len(of.Series) > 0 && of.acceptedOver == nil {
			return false
		}
	}
	return true
}

// maxEmpty bounds the contributors of which nothing is held but the position.
const maxEmpty = 64

// dropEmpty forgets the oldest contributors of which nothing is held.
func (h *Holdings) dropEmpty() {
	var empty []*holding
	for _, of := range h.sorted() {
		if !of.open && len(of.Series) == 0 {
			empty = append(empty, of)
		}
	}
	for _, of := range empty[:max(0, len(empty)-maxEmpty)] {
		delete(h.of, of.Contributor)
	}
}

// release removes the usage of a mirror.
func (h *Holdings) release(m Mirror) {
	for _, s := range m {
		h.bytes -= s.bytes
		h.occurrences -= s.weight
	}
}

// get returns the holding of a contributor, which it adds if it is missing.
func (h *Holdings) get(c counter.Contributor) *holding {
	of := h.of[c]
	if of == nil {
		of = &holding{Holding: Holding{Contributor: c}}
		h.of[c] = of
	}
	h.now++
	of.changed, of.acceptedOver = h.now, nil
	return of
}

var (
	errHoldingsFull = errors.New("the holdings are full")
	errOpen         = errors.New("another session with the same leader is open")
	errSessionOver  = errors.New("the session has ended")
)

// stage is a mirror that is being built or changed. The mutex of the holdings guards it.
type stage struct {
	of          *Holdings
	contributor counter.Contributor
	mirror      Mirror
}

// apply applies a batch as a whole, or not at all.
func (s *stage) apply(changes []Change, snapshot []PendingSeries) error {
	touched := make(Mirror)
	for i := range changes {
		if err := s.change(touched, &changes[i]); err != nil {
			return err
		}
	}
	for i := range snapshot {
		if err := s.extend(touched, &snapshot[i]); err != nil {
			return err
		}
	}
	return s.commit(touched)
}

// change applies a change to a copy of its series.
func (s *stage) change(touched Mirror, c *Change) error {
	t, err := s.touch(touched, c)
	switch {
	case err != nil:
		return err
	case c.Addition != nil:
		return t.held.Apply(c.Addition.Entry, c.Addition.Merged)
	case c.First != 0:
		return t.held.Join(c.First, c.Second)
	default:
		return t.held.Settle(c.Settled)
	}
}

// touch returns the copy of the series of a change.
func (s *stage) touch(touched Mirror, c *Change) (*HeldSeries, error) {
	t := touched[c.Key]
	before := s.mirror[c.Key]
	switch {
	case t != nil && t.held.Len() > 0:
	case c.Addition != nil && c.Addition.Series != nil:
		t = &HeldSeries{held: counter.Hold(s.contributor, *c.Addition.Series)}
	case t != nil || before == nil:
		return nil, fmt.Errorf("a change of a series of which nothing is held")
	default:
		t = &HeldSeries{held: before.held.Clone()}
	}
	touched[c.Key] = t
	return t, nil
}

// extend adds a part of what is pending of a series.
func (s *stage) extend(touched Mirror, o *PendingSeries) error {
	if o.Series == nil {
		return errors.New("a series is missing")
	}
	t := touched[o.Series.Key]
	switch before := s.mirror[o.Series.Key]; {
	case t != nil:
	case before != nil:
		t = &HeldSeries{held: before.held.Clone()}
	default:
		t = &HeldSeries{held: counter.Hold(s.contributor, *o.Series)}
	}
	for _, e := range o.Entries {
		if err := t.held.Apply(e, false); err != nil {
			return err
		}
	}
	touched[o.Series.Key] = t
	return nil
}

// SeriesBytes is the memory of a series beside its entries.
const SeriesBytes = 1024

// commit adds the changed series to the mirror, if there is memory for them.
func (s *stage) commit(touched Mirror) error {
	bytes, weight := int64(0), int64(0)
	for key, t := range touched {
		t.bytes, t.weight = SeriesBytes+t.held.Bytes(), t.held.Weight()
		if t.held.Len() == 0 {
			t.bytes = 0
		}
		bytes, weight = bytes+t.bytes, weight+t.weight
		if before := s.mirror[key]; before != nil {
			bytes, weight = bytes-before.bytes, weight-before.weight
		}
	}
	if bytes > 0 && s.of.bytes+bytes > s.of.max {
		return errHoldingsFull
	}
	s.of.bytes += bytes
	s.of.occurrences += weight
	for key, t := range touched {
		if t.held.Len() == 0 {
			delete(s.mirror, key)
		} else {
			s.mirror[key] = t
		}
	}
	return nil
}

// discard drops the mirror.
func (s *stage) discard() {
	s.of.release(s.mirror)
	s.mirror = nil
}
