package delivery

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/eventd/eventd/internal/notify"
	"github.com/eventd/eventd/internal/ratelimitedlog"
	"github.com/eventd/eventd/pkg/config/v1alpha1"
	"github.com/eventd/eventd/pkg/observer"
)

const (
	// cursorInterval is the minimum time between two writes of the cursors, unless maxUnwritten
	// versions were delivered since the last one: a leader that catches up, and is killed, does not
	// leave all of it to its successor.
	cursorInterval = 2 * time.Second
	maxUnwritten   = 1024
	// cursorTimeout limits a read or a write, including reads and writes after conflicts.
	cursorTimeout = 5 * time.Second
	// unusedTime is how long the entry of an unknown receiver is kept.
	unusedTime = 24 * time.Hour
	// maxConflicts bounds the attempts of one write.
	maxConflicts = 5
)

// errConflicts: other processes write the ConfigMap all the time.
var errConflicts = errors.New("the ConfigMap of the cursors has changed before each write")

// cursors are the cursors of all receivers during a term. The workers move them, and run writes
// them. It is safe for concurrent use.
type cursors struct {
	store   *store
	leading func() bool
	metrics *cursorMetrics
	lines   *ratelimitedlog.Limiter
	due     chan struct{} // has an element while there is something to write
	many    chan struct{} // has an element when maxUnwritten is reached

	mu sync.Mutex
	// entries are all that could be decoded, by receiver, unknown receivers included.
	entries map[string]entry
	// receivers are the known receivers.
	receivers map[string]bool
	// unreadable are the keys of known receivers that could not be decoded.
	unreadable map[string]bool
	// stored is the ConfigMap as it was last read or written.
	stored snapshot
	// changes counts changes of entries, and written those that are stored.
	changes, written int64
	// unwritten is how many versions were delivered since the last write began.
	unwritten int
	// progress is notified when written rises.
	progress notify.Notifier
}

func newCursors(s *store, leading func() bool, m *cursorMetrics) *cursors {
	return &cursors{
		store: s, leading: leading, metrics: m, lines: ratelimitedlog.New(ratelimitedlog.Interval),
		due: make(chan struct{}, 1), many: make(chan struct{}, 1),
		entries: make(map[string]entry), receivers: make(map[string]bool), unreadable: make(map[string]bool),
	}
}

// load reads the ConfigMap. It must succeed once before anything is delivered.
func (c *cursors) load(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, cursorTimeout)
	defer cancel()
	s, err := c.store.load(ctx)
	if err != nil {
		return err
	}
	if s.created {
		c.metrics.created.Inc()
		klog.FromContext(ctx).Info("There was no ConfigMap of the cursors: all receivers start as new ones", "configMap", c.store.name)
	}
	c.merge(ctx, s)
	return nil
}

// merge takes over what is stored. Of two cursors of a receiver it keeps the later one.
func (c *cursors) merge(ctx context.Context, s snapshot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stored = s
	for key, text := range s.data {
		e, err := decodeEntry(text)
		own, known := c.entries[key]
		switch {
		case err != nil && (known || c.receivers[key]):
			c.refuse(ctx, key, err)
		case err != nil: // of somebody else
		case !known || after(e.cursor(), own.cursor()):
			c.entries[key] = e
		}
	}
	c.mark(time.Now())
}

// refuse counts a key that cannot be decoded. The mutex must be held.
func (c *cursors) refuse(ctx context.Context, key string, err error) {
	if c.unreadable[key] {
		return
	}
	c.unreadable[key] = true
	c.metrics.unreadable.Inc()
	klog.FromContext(ctx).Error(bounded(err), "The stored cursor of a receiver is not readable. It is replaced", "receiver", key)
}

// setReceivers sets which receivers are known.
func (c *cursors) setReceivers(ctx context.Context, receivers []v1alpha1.Receiver) {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.receivers)
	for _, r := range receivers {
		c.receivers[r.Name] = true
		if text, ok := c.stored.data[r.Name]; ok {
			if _, err := decodeEntry(text); err != nil && c.entries[r.Name] == (entry{}) {
				c.refuse(ctx, r.Name, err)
			}
		}
	}
	c.mark(time.Now())
}

// mark records since when the entries of unknown receivers are unused. An entry that was unused for
// too long is not used again. The mutex must be held.
func (c *cursors) mark(now time.Time) {
	for name, e := range c.entries {
		switch used := c.receivers[name]; {
		case used && e.expired(now):
			delete(c.entries, name)
			continue
		case used && !e.UnusedSince.IsZero():
			e.UnusedSince = time.Time{}
		case !used && e.UnusedSince.IsZero():
			e.UnusedSince = inSeconds(now)
		default:
			continue
		}
		c.entries[name] = e
		c.changed()
	}
}

// changed has the entries written. The mutex must be held.
func (c *cursors) changed() {
	c.changes++
	notify.Wake(c.due)
}

// start returns where a receiver begins. restored: its history is no longer there.
func (c *cursors) start(r *v1alpha1.Receiver) (start observer.Start, restored bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	epoch := c.epoch()
	switch e, ok := c.entries[r.Name]; {
	case !ok:
		return observer.Start{Oldest: r.From == v1alpha1.FromOldest, Cursor: observer.Cursor{Epoch: epoch}}, false
	case e.Epoch < epoch: // another receiver has noticed the restoration
		return observer.Start{Oldest: true, Cursor: observer.Cursor{Epoch: epoch}}, true
	default:
		return observer.Start{Oldest: e.ResourceVersion == "", Cursor: e.cursor()}, false
	}
}

// epoch returns the highest epoch. The mutex must be held.
func (c *cursors) epoch() (epoch int64) {
	for _, e := range c.entries {
		epoch = max(epoch, e.Epoch)
	}
	return epoch
}

// cursor returns the cursor of a receiver. It is zero if it has none.
func (c *cursors) cursor(name string) observer.Cursor {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.entries[name].cursor()
}

// advance moves the cursor of a receiver forward. One that is not later is ignored.
func (c *cursors) advance(name string, to observer.Cursor) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.entries[name]; !wellFormed(to) || ok && !after(to, e.cursor()) {
		return
	}
	c.entries[name] = entry{ResourceVersion: to.ResourceVersion, Epoch: to.Epoch, Updated: inSeconds(time.Now())}
	c.changed()
}

// delivered counts versions that were delivered, after advance.
func (c *cursors) delivered(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unwritten += n; c.unwritten >= maxUnwritten {
		notify.Wake(c.many)
	}
}

// awaitWritten waits until everything up to now is stored, and returns false if ctx ends before.
func (c *cursors) awaitWritten(ctx context.Context) bool {
	c.mu.Lock()
	changes := c.changes
	c.mu.Unlock()
	return c.progress.Await(ctx, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.written >= changes
	}) == nil
}

// run writes the cursors when they have changed, every cursorInterval or after maxUnwritten
// versions, until ctx ends.
func (c *cursors) run(ctx context.Context) {
	for {
		select {
		case <-c.due:
		case <-ctx.Done():
			return
		}
		next := time.NewTimer(cursorInterval)
		var many <-chan struct{} // nil after a failure, and so never ready
		if !c.leading() {
			notify.Wake(c.due) // unless the term is over, it is only late to know that it leads
		} else if c.tryWrite(ctx) {
			many = c.many
		}
		select {
		case <-next.C:
		case <-many:
			next.Stop()
		case <-ctx.Done(): // also if something is due
			next.Stop()
			return
		}
	}
}

// tryWrite writes the cursors. A failure is counted, and the write is due again.
func (c *cursors) tryWrite(ctx context.Context) (ok bool) {
	limited, cancel := outlast(ctx)
	defer cancel()
	err := c.write(limited)
	if err == nil {
		return true
	}
	notify.Wake(c.due)
	if ctx.Err() != nil {
		return false // the term has ended, and writes once more
	}
	c.metrics.failed.Inc()
	if c.lines.Allow("write") {
		klog.FromContext(ctx).Error(bounded(err), "Could not store the cursors of the receivers. A restart would deliver again what was delivered meanwhile",
			"quietFor", ratelimitedlog.Interval)
	}
	return false
}

// write writes what has changed. If another process has written meanwhile, it keeps the later
// cursor of each receiver.
func (c *cursors) write(ctx context.Context) error {
	for range maxConflicts {
		resourceVersion, differences, changes := c.difference(time.Now())
		if len(differences) == 0 {
			c.wrote(changes)
			return nil
		}
		s, err := c.store.patch(ctx, resourceVersion, differences)
		switch {
		case err == nil:
			c.metrics.writes.Inc()
			c.forget(differences, s)
			c.wrote(changes)
			return nil
		case !apierrors.IsConflict(err) && !apierrors.IsNotFound(err):
			return err
		}
		if s, err = c.store.load(ctx); err != nil {
			return err
		}
		c.merge(ctx, s)
	}
	return errConflicts
}

// difference returns what has to be written: nil for keys to delete.
func (c *cursors) difference(now time.Time) (resourceVersion string, differences map[string]*string, changes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unwritten = 0
	select {
	case <-c.many:
	default:
	}
	differences = make(map[string]*string)
	for name, e := range c.entries {
		text := e.encode()
		stored, ok := c.stored.data[name]
		switch {
		case e.expired(now):
			differences[name] = nil
		case !ok || stored != text:
			differences[name] = &text
		}
	}
	return c.stored.resourceVersion, differences, c.changes
}

// forget takes over what was written, and removes the entries that were deleted.
func (c *cursors) forget(differences map[string]*string, s snapshot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stored = s
	for name, text := range differences {
		if text == nil && !c.receivers[name] {
			delete(c.entries, name)
		}
	}
}

func (c *cursors) wrote(changes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.written = changes
	c.progress.Notify()
}

// lowest returns where a source begins that has readers with these starts.
func lowest(starts []observer.Start) observer.Start {
	highest := slices.MaxFunc(starts, func(a, b observer.Start) int { return cmp.Compare(a.Cursor.Epoch, b.Cursor.Epoch) })
	begin := observer.Start{Cursor: observer.Cursor{Epoch: highest.Cursor.Epoch}}
	for _, s := range starts {
		switch c := s.Cursor; {
		case s.Oldest:
			return observer.Start{Oldest: true, Cursor: observer.Cursor{Epoch: highest.Cursor.Epoch}}
		case c.ResourceVersion != "" && (begin.Cursor.ResourceVersion == "" || after(begin.Cursor, c)):
			begin.Cursor = c
		}
	}
	return begin
}
