package observer

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/internal/sleep"
	"github.com/eventd/eventd/test/seeds"
)

// smallSizes make a few versions go through everything.
var smallSizes = sizes{blockVersions: 4, blockBytes: 1 << 20, fetchBytes: 10_000, page: 7}

// model is an Observer, its receivers, and an apiserver whose state is known.
type model struct {
	t         *testing.T
	rng       *rand.Rand
	store     *store
	o         *Observer
	receivers []*destination
	end       func()
	// faulty: requests fail, and watches break.
	faulty atomic.Bool
	mu     sync.Mutex // of rng, which the store uses in its own goroutines
}

func (m *model) intN(n int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rng.IntN(n)
}

func newModel(t *testing.T, seed uint64) *model {
	m := &model{t: t, rng: rand.New(rand.NewPCG(seed, 0)), store: newStore()}
	m.store.fault = func() error {
		if !m.faulty.Load() {
			return nil
		}
		switch m.intN(12) {
		case 0:
			return status(500, 0)
		case 1:
			return status(429, 3)
		case 2:
			return status(403, 0)
		case 3:
			return errHang
		default:
			return nil
		}
	}
	m.store.expires = func() bool { return m.intN(4) == 0 }
	m.store.breakAfter = func() int {
		if m.faulty.Load() {
			return m.intN(20)
		}
		return 1 << 30
	}
	return m
}

// start starts an Observer, which goes on where the receivers are.
func (m *model) start(maxBytes int64) {
	opts := Options{Source: m.store, MaxBytes: maxBytes}
	for i, d := range m.receivers {
		switch {
		case i == 0 || d.cursor.Epoch > opts.Start.Epoch:
			opts.Start = d.cursor
		case d.cursor.Epoch == opts.Start.Epoch && !newer(d.cursor.ResourceVersion, opts.Start.ResourceVersion):
			opts.Start = d.cursor
		}
	}
	if m.intN(2) == 0 {
		opts.Start.ResourceVersion = "" // now
	}
	o, err := newObserver(opts, smallSizes)
	if err != nil {
		m.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(m.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := o.Run(ctx); err != nil {
			m.t.Error(err)
		}
	}()
	m.o, m.end = o, func() { cancel(); <-done }
	for _, d := range m.receivers {
		d.run()
	}
}

func (m *model) stop() {
	for _, d := range m.receivers {
		d.stop()
	}
	m.end()
}

// destination receives from a reader, and remembers what it has got, over any number of readers.
type destination struct {
	m     *model
	name  string
	start Start
	delay func() time.Duration // of one batch

	mu     sync.Mutex
	cursor Cursor // settled
	begun  bool
	// got are the ids of the epoch, and newest the resourceVersions by uid.
	got        map[string]bool
	newest     map[string]int64
	gaps       int
	restored   int
	superseded int64
	// from: what is stored after it has to arrive.
	from int64
	r    *Reader
	end  func()
}

func (m *model) add(start Start, delay func() time.Duration) *destination {
	d := &destination{m: m, name: fmt.Sprint("receiver ", len(m.receivers)), start: start, delay: delay, got: make(map[string]bool), newest: make(map[string]int64)}
	m.receivers = append(m.receivers, d)
	d.run()
	return d
}

func (d *destination) run() {
	start := d.start
	if d.cursor != (Cursor{}) {
		start = Start{Cursor: d.cursor}
	}
	d.r = d.m.o.Reader(start)
	ctx, cancel := context.WithCancel(d.m.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.receive(ctx, d.r, rvOf(start.Cursor.ResourceVersion))
	}()
	d.end = func() { cancel(); <-done; d.r.Close() }
}

func (d *destination) stop() { d.end() }

func rvOf(rv string) int64 {
	n, _ := strconv.ParseInt(rv, 10, 64)
	return n
}

// receive delivers until ctx ends, in the middle of a batch, too.
func (d *destination) receive(ctx context.Context, r *Reader, resumed int64) {
	var returned, superseded, observed int64
	mine := make(map[string]bool) // ids of this reader
	for {
		b, err := r.Next(ctx, 1+d.m.intN(10))
		if err != nil {
			return
		}
		returned += int64(len(b.Entries))
		superseded += b.Superseded
		s := r.Status()
		if s.Observed != returned+superseded+s.Pending || s.Pending < 0 || s.Observed < observed {
			d.m.t.Errorf("%s: observed %d (before: %d) is not returned %d + superseded %d + pending %d", d.name, s.Observed, observed, returned, superseded, s.Pending)
		}
		observed = s.Observed
		if n := len(r.fetched); n > 13 || s.OldestPending > 100*time.Hour {
			d.m.t.Errorf("%s: %d versions were fetched at once, and the oldest is %s old", d.name, n, s.OldestPending)
		}
		if b.Restored {
			mine = make(map[string]bool)
		}
		d.note(b)
		for i, e := range b.Entries {
			if ctx.Err() != nil {
				return
			}
			if mine[e.ID()] && d.m.store.tokens {
				d.m.t.Errorf("%s: the reader has returned %s twice", d.name, e.ID())
			}
			mine[e.ID()] = true
			d.deliver(e, resumed)
			if e.Cursor != (Cursor{}) && d.m.intN(3) == 0 {
				d.settle(e.Cursor)
			}
			if i%3 == 0 && d.m.intN(4) == 0 {
				_ = sleep.For(ctx, d.delay())
			}
		}
		if ctx.Err() != nil || sleep.For(ctx, d.delay()) != nil {
			return
		}
		if b.Cursor != (Cursor{}) {
			d.settle(b.Cursor)
		}
	}
}

// note remembers what a batch says.
func (d *destination) note(b Batch) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.superseded += b.Superseded
	if b.Gap {
		d.gaps++
	}
	if b.Restored {
		d.restored++
		d.got, d.newest = make(map[string]bool), make(map[string]int64)
		d.from, d.begun = 0, true
	}
	if !d.begun && (len(b.Entries) > 0 || b.Cursor != (Cursor{})) {
		d.begun = true
		if !d.start.Oldest { // it is stored at once, as a reader after this one begins there
			d.from, d.cursor = rvOf(b.Cursor.ResourceVersion), b.Cursor
			wantNone(d.m.t, "entries before the cursor of a reader that begins now", len(b.Entries))
		}
	}
}

func (d *destination) deliver(e Entry, resumed int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	rv, uid := rvOf(e.Event.ResourceVersion), string(e.Event.UID)
	if e.Event.ManagedFields != nil {
		d.m.t.Errorf("%s: %s has managedFields", d.name, e.ID())
	}
	if rv <= resumed && d.restored == 0 {
		d.m.t.Errorf("%s: %s is not above the cursor %d", d.name, e.ID(), resumed)
	}
	if !d.got[e.ID()] && rv < d.newest[uid] {
		d.m.t.Errorf("%s: %s is delivered first after %d", d.name, e.ID(), d.newest[uid])
	}
	d.got[e.ID()] = true
	d.newest[uid] = max(d.newest[uid], rv)
}

func (d *destination) settle(c Cursor) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if c.Epoch < d.cursor.Epoch || c.Epoch == d.cursor.Epoch && newer(d.cursor.ResourceVersion, c.ResourceVersion) {
		d.m.t.Errorf("%s: the cursor goes back from %v to %v", d.name, d.cursor, c)
	}
	d.cursor = c
}

// check requires that everything has arrived. Nothing has happened for a long time.
func (d *destination) check() {
	d.mu.Lock()
	defer d.mu.Unlock()
	t, state := d.m.t, d.m.store.state()
	if s := d.r.Status(); s.Pending != 0 || s.OldestPending != 0 {
		t.Errorf("%s: %d are pending, for %s", d.name, s.Pending, s.OldestPending)
	}
	if d.gaps == 0 && d.restored == 0 && !d.start.Oldest {
		d.checkAll(state)
	}
	for name, event := range state {
		rv := rvOf(event.ResourceVersion)
		if rv > d.from && d.newest[string(event.UID)] != rv {
			t.Errorf("%s: the final state of %s is %d, and it has got %d (from %d, %d gaps)", d.name, name, rv, d.newest[string(event.UID)], d.from, d.gaps)
		}
	}
}

// checkAll requires every version in the history, but those of Events that are gone, if there was a
// compaction.
func (d *destination) checkAll(state map[string]*corev1.Event) {
	s := d.m.store
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.history {
		id := Version{Event: r.event}.ID()
		left := state[r.event.Name] == nil || state[r.event.Name].UID != r.event.UID
		if r.rev > d.from && r.kind != "DELETED" && !d.got[id] && (s.compacted == 0 || !left) {
			d.m.t.Errorf("%s: %s is missing, and no gap was reported", d.name, id)
		}
	}
}

// Whatever the apiserver, the connections and the receivers do: each receiver gets every version while
// a watch can be resumed, and the latest one of each stored Event after that.
func TestEveryReceiverGetsWhatIsPromised(t *testing.T) {
	had := make(map[string]float64)
	for seed := range seeds.Of(50) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { runModel(t, seed, had) })
		})
		if t.Failed() {
			return
		}
	}
	for _, what := range []string{"superseded", "rereads", "lists", "gaps", "restores", "expired tokens", "lists begun anew"} {
		if had[what] == 0 {
			t.Errorf("no seed has had any %s", what)
		}
	}
	t.Log(had)
}

func runModel(t *testing.T, seed uint64, had map[string]float64) {
	m := newModel(t, seed)
	// A third of the seeds each: without compaction, with it, and with restores as well.
	compacts, restores := seed%3 > 0, seed%3 == 2
	m.store.tokens, m.store.maxPage = seed%4 > 0, 1+m.intN(10)
	maxBytes := int64(20_000 << m.intN(4))
	m.change(20)
	m.start(maxBytes)
	fast := func() time.Duration { return 0 }
	slow := func() time.Duration { return time.Duration(m.intN(3000)) * time.Millisecond }
	m.add(Start{}, fast)
	m.add(Start{Oldest: true}, slow)
	for range 150 {
		m.step(compacts, restores, maxBytes)
		if m.intN(30) == 0 && len(m.receivers) < 5 {
			m.add(Start{Oldest: m.intN(2) == 0}, []func() time.Duration{fast, slow}[m.intN(2)])
		}
	}
	m.faulty.Store(false)
	m.quiet(30 * time.Minute)
	for _, d := range m.receivers {
		d.check()
	}
	wantNone(t, "changes that the apiserver keeps", m.store.unread())
	m.stop()
	had["rereads"] += testutil.ToFloat64(m.o.metrics.rereads)
	had["lists"] += testutil.ToFloat64(m.o.metrics.lists)
	had["gaps"] += testutil.ToFloat64(m.o.metrics.gaps)
	had["restores"] += testutil.ToFloat64(m.o.metrics.restores)
	had["expired tokens"] += float64(m.store.expired)
	had["lists begun anew"] += float64(m.store.lost)
	for _, d := range m.receivers {
		had["superseded"] += float64(d.superseded)
	}
	if at := m.o.log.buffer.bytes(); at > maxBytes+20_000 {
		t.Errorf("the buffer has %d bytes, its limit is %d", at, maxBytes)
	}
}

// quiet lets time pass.
func (m *model) quiet(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// change makes n changes.
func (m *model) change(n int) {
	for range n {
		name := fmt.Sprintf("event-%02d", m.intN(40))
		switch m.intN(8) {
		case 0:
			m.store.remove(name)
		case 1:
			m.store.other(int64(1 + m.intN(3)))
		default:
			m.store.put(name)
		}
	}
}

func (m *model) step(compacts, restores bool, maxBytes int64) {
	switch k := m.intN(40); {
	case k == 0 && compacts:
		m.store.compact()
	case k == 1 && restores:
		m.faulty.Store(false)
		m.quiet(10 * time.Minute) // all are connected, and have seen everything
		m.store.restore(int64(1 + m.intN(100)))
		m.quiet(10 * time.Minute)
	case k == 2:
		m.store.breakWatches()
	case k == 3:
		m.faulty.Store(!m.faulty.Load())
	case k == 4:
		m.change(200)
	case k == 5:
		m.stop()
		m.change(m.intN(50))
		m.start(maxBytes)
	case k == 6:
		d := m.receivers[m.intN(len(m.receivers))]
		d.stop()
		m.change(m.intN(50))
		d.run()
	default:
		m.change(m.intN(10))
	}
	m.quiet(time.Duration(m.intN(2000)) * time.Millisecond)
}
