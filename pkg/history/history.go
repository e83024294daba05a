package history

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/eventd/eventd/pkg/observer"
)

// History is what was observed. It is safe for concurrent use, but one goroutine at a time adds to it.
// It needs no shutdown: what runs is Run, and for a moment after Add what seals.
type History struct {
	maxBytes int64
	sizes    sizes
	codec    *codec
	metrics  *Metrics
	budget   *budget

	mu    sync.Mutex
	store store
	// head are the newest versions. What was returned of it does not change.
	head      []row
	headBytes int64
	next      int64 // sequence number of the next version
	// reached is the point up to which everything is known.
	reached position
	// complete is the point from which on every version was added, and completeSeq the sequence
	// number of the first version behind it. A follower may begin there, or later.
	complete    uint64
	completeSeq int64
	// first and firstSeq are those of the first list of the epoch.
	first    uint64
	firstSeq int64
	// listing: a list is being added, which begins with the sequence number listSeq. beginning: it is
	// the first one of an epoch, or there was none yet.
	listing, beginning bool
	listSeq            int64
	// began is when the first version was observed, in microseconds since 1970, or the first list was
	// complete.
	began int64
	// sealing is closed when the goroutine that seals ends. It is nil if none runs.
	sealing chan struct{}
	source  Source // nil before and after Run
}

// New returns an empty History.
func New(opts Options) (*History, error) {
	if err := opts.validate(); err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	return newHistory(opts, defaultSizes(opts.MaxBytes))
}

func newHistory(opts Options, s sizes) (*History, error) {
	m := opts.Metrics
	if m == nil {
		var err error
		if m, err = NewMetrics(nil); err != nil {
			return nil, fmt.Errorf("history: %w", err)
		}
	}
	c, err := newCodec(s, m.decoded)
	if err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	budget, err := newBudget()
	if err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	h := &History{maxBytes: opts.MaxBytes, sizes: s, codec: c, budget: budget, metrics: m, store: newStore(), beginning: true}
	m.current.Store(h)
	return h, nil
}

// Add adds a version, which must be later than those before it. What it needs of the Event is copied.
func (h *History) Add(v observer.Version) {
	r, ok := newRow(v, false)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.beginning && ok {
		h.completeLocked(r.rv - 1)
	}
	h.addLocked(r, ok)
	h.reached.rv = max(h.reached.rv, r.rv)
	h.addedLocked()
}

// completeLocked notes that everything after a resourceVersion is added from now on.
func (h *History) completeLocked(rv uint64) {
	h.complete, h.completeSeq = rv, h.next
	if h.beginning {
		h.first, h.firstSeq = rv, h.next
	}
	h.listing, h.beginning = false, false
}

// addLocked appends a row to the head, and removes what is too much then. ok is that of newRow.
func (h *History) addLocked(r row, ok bool) {
	if !ok {
		h.metrics.skipped.Inc()
		return
	}
	r.seq, r.epoch = h.next, h.reached.epoch
	h.next++
	h.head = append(h.head, r)
	h.headBytes += r.bytes
	if h.began == 0 {
		h.began = r.Observed.UnixMicro()
	}
	h.evictLocked()
}

// addedLocked has the head sealed if that is due.
func (h *History) addedLocked() {
	if h.sealing == nil && h.sealableLocked() != nil {
		h.sealing = make(chan struct{})
		go h.seal()
	}
}

// sealableLocked returns the run of the head that is due to be sealed, if any.
func (h *History) sealableLocked() []row {
	if len(h.head) < h.sizes.runVersions+h.sizes.tailVersions && h.headBytes < h.sizes.runBytes+h.sizes.tailBytes {
		return nil
	}
	n, bytes := 0, int64(0)
	for n < min(len(h.head), h.sizes.runVersions) && bytes < h.sizes.runBytes && h.head[n].epoch == h.head[0].epoch {
		bytes += h.head[n].bytes
		n++
	}
	return h.head[:n:n]
}

// seal seals what is due, without the lock, and ends.
func (h *History) seal() {
	for {
		h.mu.Lock()
		run := h.sealableLocked()
		if run == nil {
			close(h.sealing)
			h.sealing = nil
			h.mu.Unlock()
			return
		}
		h.mu.Unlock()
		blocks := h.codec.encode(run)
		h.mu.Lock()
		// What was added meanwhile may have pushed the run out.
		if len(h.head) > 0 && h.head[0].seq == run[0].seq {
			h.cutLocked(len(run))
			h.store.add(blocks)
			h.evictLocked()
		}
		h.mu.Unlock()
	}
}

// cutLocked removes n versions from the beginning of the head.
func (h *History) cutLocked(n int) {
	for i := range n {
		h.headBytes -= h.head[i].bytes
	}
	// A copy: the old array may be in use, and would keep what was cut alive.
	h.head = append(make([]row, 0, len(h.head)-n+h.sizes.runVersions), h.head[n:]...)
}

// evictLocked removes what is too much. The head has at most half of the memory: it is larger than
// that only if versions come faster than they are sealed, which Run waits for.
func (h *History) evictLocked() {
	for h.sizeLocked() > h.maxBytes {
		if n := h.store.evict(h.maxBytes); n > 0 {
			h.metrics.evicted.Add(float64(n))
		} else if !h.dropLocked() {
			break
		}
	}
	for h.headBytes > h.maxBytes/2 && h.dropLocked() {
	}
}

// dropLocked removes the oldest eighth of the head, which is of all namespaces. It returns false if the
// head is empty.
func (h *History) dropLocked() bool {
	n, bytes := 0, int64(0)
	for n < len(h.head) && bytes <= h.headBytes/8 {
		r := &h.head[n]
		bytes += r.bytes
		h.store.floor = max(h.store.floor, r.Observed.UnixMicro())
		h.store.setLost(r.seq+1, position{r.epoch, r.rv})
		n++
	}
	if n == 0 {
		return false
	}
	h.metrics.evicted.Add(float64(n))
	h.cutLocked(n)
	return true
}

func (h *History) sizeLocked() int64 { return h.headBytes + h.store.size() }

// sealed returns a channel that is closed when the head is not too long, or nil if it is not.
func (h *History) sealed() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.head) < 2*h.sizes.runVersions+h.sizes.tailVersions && h.headBytes < 2*h.sizes.runBytes+h.sizes.tailBytes {
		return nil
	}
	return h.sealing
}

// Status is what a history has.
type Status struct {
	Versions, Bytes, MaxBytes int64
	// KnownSince is when the oldest version was observed. It is zero if there is none.
	KnownSince time.Time
	// Connected: the watch of the observer is open.
	Connected bool
	// ResourceVersion is what List and Follow return, and is empty before the first list is complete.
	ResourceVersion string
}

// Status returns what the history has.
func (h *History) Status() Status {
	h.mu.Lock()
	s := Status{
		Versions: h.store.versions + int64(len(h.head)), Bytes: h.sizeLocked(), MaxBytes: h.maxBytes,
		ResourceVersion: h.resourceVersionLocked(),
	}
	switch {
	case len(h.store.blocks) > 0:
		s.KnownSince = h.store.oldest()
	case len(h.head) > 0:
		s.KnownSince = h.head[0].Observed
	}
	source := h.source
	h.mu.Unlock()
	s.Connected = source != nil && source.Status().Connected
	return s
}

func (h *History) resourceVersionLocked() string {
	if h.beginning {
		return ""
	}
	return h.reached.String()
}

// knownSinceLocked is Result.KnownSince.
func (h *History) knownSinceLocked(namespaces []string) time.Time {
	at := h.store.knownSince(namespaces)
	switch {
	case at > 0:
		return time.UnixMicro(max(at+1, h.began))
	case h.began == 0:
		return time.Time{}
	}
	return time.UnixMicro(h.began)
}

// snapshot is what a query reads.
type snapshot struct {
	head            []row
	blocks          []*block
	knownSince      time.Time
	resourceVersion string
}

func (h *History) snapshot(namespaces []string) snapshot {
	h.mu.Lock()
	defer h.mu.Unlock()
	return snapshot{
		head: h.head[:len(h.head):len(h.head)], blocks: slices.Clone(h.store.blocks),
		knownSince: h.knownSinceLocked(namespaces), resourceVersion: h.resourceVersionLocked(),
	}
}
