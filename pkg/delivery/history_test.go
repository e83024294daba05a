package delivery

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eventd/eventd/pkg/observer"
)

// history is what an apiserver stores of Events, in memory.
type history struct {
	mu        sync.Mutex
	versions  []*corev1.Event // in order of resource version
	head      int             // the last resource version
	compacted int             // up to this one, only the latest versions can be read
	epoch     int64
	readers   map[*memoryReader]bool
	collapsed map[string]bool // by ID: a list had a later version in its place
	changed   chan struct{}   // closed and replaced
}

func newHistory() *history {
	return &history{head: 100, readers: make(map[*memoryReader]bool), collapsed: make(map[string]bool), changed: make(chan struct{})}
}

func versionOf(e *corev1.Event) int {
	rv, err := strconv.Atoi(e.ResourceVersion)
	if err != nil {
		panic(err)
	}
	return rv
}

// write stores a version of an Event.
func (h *history) write(uid string) *corev1.Event { return h.writeVersions(uid, 1)[0] }

// writeVersions stores n versions of one Event. Who reads gets all of them at once.
func (h *history) writeVersions(uid string, n int) (versions []*corev1.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for range n {
		h.head++
		e := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: uid, UID: types.UID(uid), ResourceVersion: strconv.Itoa(h.head)}}
		h.versions = append(h.versions, e)
		for r := range h.readers {
			r.add(e)
		}
		versions = append(versions, e)
	}
	close(h.changed)
	h.changed = make(chan struct{})
	return versions
}

// compact leaves only the latest version of each Event to who begins to read.
func (h *history) compact() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.compacted = h.head
}

// hasCollapsed reports whether a list had a later version in the place of this one.
func (h *history) hasCollapsed(id string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.collapsed[id]
}

// restore removes all versions after one.
func (h *history) restore(to int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.versions = slices.DeleteFunc(h.versions, func(e *corev1.Event) bool { return versionOf(e) > to })
	h.head, h.compacted = to, 0
	h.epoch++
	for r := range h.readers {
		r.drop()
	}
}

// latest returns the latest version of each Event after one, in order.
func (h *history) latest(after int) []*corev1.Event {
	byUID := make(map[types.UID]*corev1.Event)
	for _, e := range h.versions {
		if versionOf(e) > after {
			byUID[e.UID] = e
		}
	}
	return slices.SortedFunc(maps.Values(byUID), func(a, b *corev1.Event) int { return versionOf(a) - versionOf(b) })
}

func (h *history) cursor(rv int) observer.Cursor {
	return observer.Cursor{Epoch: h.epoch, ResourceVersion: strconv.Itoa(rv)}
}

// memorySource reads a history for one process.
type memorySource struct {
	history *history
	limit   int // of a reader's buffer
	// made is called with each reader.
	made func(*memoryReader)
	err  error // of Run
	fail chan struct{}
}

func (s *memorySource) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-s.fail:
		return s.err
	}
}

func (s *memorySource) Reader(start observer.Start) Reader {
	s.history.mu.Lock()
	defer s.history.mu.Unlock()
	r := &memoryReader{history: s.history, limit: s.limit, next: start, wake: make(chan struct{}, 1)}
	if start.Oldest || start.Cursor.ResourceVersion != "" {
		r.fill()
	} else {
		r.reached = s.history.cursor(s.history.head)
		r.next = observer.Start{Cursor: r.reached}
	}
	s.history.readers[r] = true
	if s.made != nil {
		s.made(r)
	}
	return r
}

// memoryReader is guarded by the mutex of its history.
type memoryReader struct {
	history *history
	limit   int
	wake    chan struct{}

	next       observer.Start // after what was returned
	buffer     []observer.Entry
	reached    observer.Cursor // of a batch without entries
	behind     bool            // the buffer was full
	observed   int64
	superseded int64
	gap        bool
	restored   bool
	most       int // entries returned by one Next
	returned   int
	failures   int // of the next calls
}

// fail makes the next calls of Next fail.
func (r *memoryReader) fail(times int) {
	r.history.mu.Lock()
	defer r.history.mu.Unlock()
	r.failures = times
}

// fails reports whether a call fails, once there is something to return.
func (r *memoryReader) fails() bool {
	r.history.mu.Lock()
	defer r.history.mu.Unlock()
	if r.failures == 0 || len(r.buffer) == 0 {
		return false
	}
	r.failures--
	return true
}

// fill reads what is stored after next.
func (r *memoryReader) fill() {
	h := r.history
	now, behind := time.Now(), false
	from, _ := strconv.Atoi(r.next.Cursor.ResourceVersion)
	r.restored = r.restored || r.next.Cursor.Epoch < h.epoch
	whole := r.next.Oldest || r.restored
	switch {
	case whole, from < h.compacted: // a list
		r.gap = r.gap || !whole
		if whole {
			from, r.next = 0, observer.Start{Oldest: true, Cursor: observer.Cursor{Epoch: h.epoch}}
		}
		for _, e := range h.versions {
			h.collapsed[idOf(e)] = h.collapsed[idOf(e)] || versionOf(e) > from
		}
		for _, e := range h.latest(from) {
			r.buffer = append(r.buffer, observer.Entry{Version: observer.Version{Event: e, Observed: now}})
		}
		if n := len(r.buffer); n > 0 {
			r.buffer[n-1].Cursor = h.cursor(h.head)
		} else {
			r.reached = h.cursor(h.head)
		}
	default:
		for _, e := range h.versions {
			if versionOf(e) > from && len(r.buffer) == r.limit {
				behind = true
				break
			}
			if versionOf(e) > from {
				r.buffer = append(r.buffer, r.history.entry(e))
			}
		}
	}
	r.behind = behind
	r.observed += int64(len(r.buffer))
	r.signal()
}

func (h *history) entry(e *corev1.Event) observer.Entry {
	return observer.Entry{Version: observer.Version{Event: e, Observed: time.Now()}, Cursor: h.cursor(versionOf(e))}
}

func (r *memoryReader) add(e *corev1.Event) {
	switch {
	case r.behind:
	case len(r.buffer) >= r.limit:
		r.drop()
	default:
		r.observed++
		r.buffer = append(r.buffer, r.history.entry(e))
	}
	r.signal()
}

func (r *memoryReader) drop() {
	r.superseded += int64(len(r.buffer))
	r.buffer, r.behind = nil, true
	r.signal()
}

func (r *memoryReader) signal() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (r *memoryReader) Next(ctx context.Context, limit int) (observer.Batch, error) {
	for {
		if err := ctx.Err(); err != nil {
			return observer.Batch{}, err
		}
		if r.fails() {
			return observer.Batch{}, errors.New("unwell")
		}
		if b, ok := r.take(limit); ok {
			return b, nil
		}
		select {
		case <-r.wake:
		case <-ctx.Done():
		}
	}
}

func (r *memoryReader) take(limit int) (b observer.Batch, ok bool) {
	r.history.mu.Lock()
	defer r.history.mu.Unlock()
	if r.behind && len(r.buffer) == 0 && r.superseded == 0 {
		r.fill()
	}
	n := min(limit, len(r.buffer))
	b = observer.Batch{Entries: slices.Clone(r.buffer[:n]), Cursor: r.reached, Superseded: r.superseded, Gap: r.gap, Restored: r.restored}
	for _, e := range b.Entries {
		if e.Cursor.ResourceVersion != "" {
			r.next = observer.Start{Cursor: e.Cursor}
		}
	}
	if b.Cursor.ResourceVersion != "" {
		r.next = observer.Start{Cursor: b.Cursor}
	}
	r.buffer = r.buffer[n:]
	r.superseded, r.reached, r.gap, r.restored = 0, observer.Cursor{}, false, false
	r.most = max(r.most, n)
	r.returned += n
	return b, n > 0 || b.Superseded > 0 || b.Cursor.ResourceVersion != "" || b.Gap || b.Restored
}

func (r *memoryReader) Observed() int64 {
	r.history.mu.Lock()
	defer r.history.mu.Unlock()
	return r.observed
}

func (r *memoryReader) OldestPending() time.Time {
	r.history.mu.Lock()
	defer r.history.mu.Unlock()
	if len(r.buffer) == 0 {
		return time.Time{}
	}
	return r.buffer[0].Observed
}

func (r *memoryReader) Close() {
	r.history.mu.Lock()
	defer r.history.mu.Unlock()
	delete(r.history.readers, r)
}
