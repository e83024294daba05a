// Package sink writes occurrences to the apiserver until the stored Event of every series
// has the right count.
//
// A sink works as a controller does. The pending occurrences of each series in memory are
// the desired state, the stored Event is the observed state, and workers bring one closer
// to the other. At most one request per series is in flight; occurrences that are added
// meanwhile are part of the next one. Counts stay exact while answers are lost and several
// sinks write the same Event (pkg/sink/internal/counter, docs/counting.md).
//
// How many series are written at once follows the answers of the apiserver. Namespaces are
// served round-robin and none may use all slots, so one whose requests hang delays no other
// (pkg/sink/internal/scheduler).
//
// A write can be deferred: Add is given a delay, after which the occurrence is written at
// the latest. Its user may postpone that with a later occurrence of the series, but not the
// write of another user. Everything that is pending is part of the next write.
//
// With Options.Holdings, other processes hold what is pending, and the next leader writes it
// after a crash (pkg/sink/internal/replication, docs/replication-protocol.md).
//
// Memory is bounded. When it is full, occurrences are evicted by fair shares of namespaces
// and tenants.
//
// Add never blocks on I/O. The sink owns its goroutines: workers start when there is something
// to write, and end when there is nothing. Close ends them, and settles what could not be
// written. One mutex guards its state; see Sink.
package sink

import (
	"context"
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/eventd/eventd/internal/fairlru"
	"github.com/eventd/eventd/internal/notify"
	"github.com/eventd/eventd/internal/ratelimitedlog"
	"github.com/eventd/eventd/pkg/ledger"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/counter"
	"github.com/eventd/eventd/pkg/sink/internal/replication"
	"github.com/eventd/eventd/pkg/sink/internal/scheduler"
)

// Sink writes occurrences to one apiserver. All methods are safe for concurrent use.
type Sink struct {
	options  Options
	client   Client
	ledger   *ledger.Ledger
	instance counter.Contributor
	metrics  *metrics
	errorLog *errorLog

	// ctx is that of the workers. stop cancels their requests and waits when the context of
	// Close has ended.
	ctx       context.Context
	stop      context.CancelCauseFunc
	noWorkers chan struct{} // closed when the sink is stopped and all workers have ended
	ended     chan struct{} // closed when Close is done

	// mu guards all fields below, and the series that they lead to. While a series is in
	// work, only its worker reads and changes its counter, except for Add: so the worker
	// plans a write without mu (counter.Draft.Plan). It holds mu to begin and to commit
	// the plan and to report the answer. No request is made and no code of others is run
	// with mu held.
	mu        sync.Mutex
	scheduler *scheduler.Scheduler
	alarm     *time.Timer // starts a worker when Dequeue may return a job
	alarmAt   time.Time   // zero if the alarm is not set
	stopped   bool        // workers return
	// workers are those that Close waits for: at most Concurrency, and one for each lent
	// slot. starting is the one that was
	// started and has not dequeued yet, if there is one. When abandoning is set, a worker is
	// removed as soon as it runs external code.
	workers    map[*worker]struct{}
	starting   *worker
	abandoning bool
	requests   *requests
	closed     bool
	// sequence is that of the newest occurrence. The next one cannot be guessed, so nobody
	// can prepare an Event whose annotation already contains it.
	sequence uint64
	gaps     *mathrand.ChaCha8
	pending  map[occurrence.Key]*pendingSeries
	total    totals
	fair     *fairShare
	access   *accessCache
	// byDeadline and byRecorded have all pending series, by the deadline of the next write
	// and by when the oldest occurrence was recorded.
	byDeadline, byRecorded ages
	deferred               int // series whose deadline lies in the future
	idle                   *idleSeries
	first                  *firstRequests
	generations            *flushGenerations
	flushing               int             // calls of Flush in progress
	drained                notify.Notifier // a generation is over

	journal        *replication.Journal // nil without Options.Holdings
	sessions       sessions
	unacknowledged *unacknowledged
	early          earlyWrites
	adoptions      *adoptions
}

// New starts a sink that reports outcomes to the ledger. The context carries the logger and
// values only; Close stops the sink. The error is that of an invalid option or of
// registering metrics.
func New(ctx context.Context, c Client, l *ledger.Ledger, o Options) (*Sink, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("sink options: %w", err)
	}
	s := &Sink{
		options:  o,
		client:   c,
		ledger:   l,
		instance: counter.NewInstance(),
		gaps:     newGaps(),
		scheduler: scheduler.New(scheduler.Options{
			MinConcurrency: o.MinConcurrency, Concurrency: o.Concurrency, SlowAnswer: o.SlowAnswer, QPS: o.QPS, Burst: o.Burst,
			UrgentFirst: o.WarningsFirst,
		}),
		pending:     make(map[occurrence.Key]*pendingSeries),
		idle:        fairlru.New[occurrence.Key, string, counter.State](int64(o.MaxIdleSeries), nil),
		generations: newFlushGenerations(),
		ended:       make(chan struct{}),
		noWorkers:   make(chan struct{}),
		workers:     make(map[*worker]struct{}),
		requests:    newRequests(o.Concurrency),
		errorLog: &errorLog{
			logger: klog.FromContext(ctx), ledger: l,
			lines: ratelimitedlog.New(ratelimitedlog.Interval), missing: make(map[deniedRight]bool),
		},
	}
	s.unacknowledged = newUnacknowledged(s.onUnheld)
	s.fair = newFairShare(&s.options)
	s.alarm = time.AfterFunc(time.Hour, s.onAlarm)
	s.alarm.Stop() // until a job waits
	s.initReplication(ctx)
	// They may be scraped as soon as they are registered.
	var err error
	if s.metrics, err = newMetrics(s, o.Registerer); err != nil {
		return nil, err
	}
	if s.access, err = newAccessCache(c); err != nil {
		return nil, err
	}
	if s.first, err = newFirstRequests(); err != nil {
		return nil, err
	}
	s.ctx, s.stop = context.WithCancelCause(context.WithoutCancel(ctx))
	if s.journal != nil {
		go s.adoptWhenNeeded(s.sessions.ctx)
	}
	return s, nil
}

// maxGap is the largest difference of two sequences. 10,000 occurrences a second use up all
// sequences in a hundred years.
const maxGap = 1 << 20

// newGaps returns a source of random gaps.
func newGaps() *mathrand.ChaCha8 {
	var seed [32]byte
	rand.Read(seed[:]) // never fails
	return mathrand.NewChaCha8(seed)
}

// Add adds an occurrence of the series of the target, to be written after the delay at the
// latest; 0 is as soon as possible. It returns at once. The outcome is reported to the
// ledger and to the callbacks of the occurrence.
func (s *Sink) Add(o *occurrence.Occurrence, t occurrence.Target, delay time.Duration) {
	e, c := counter.NewEntry(o, &t)
	f := flowKey{t.Event.Namespace, occurrence.TenantOf(o.User)}
	reason, deferred, evicted := s.add(o, &t, f, &e, c, delay)
	s.count(evicted) // before any callback, which may never return
	defer s.notify(evicted)
	switch {
	case reason != occurrence.NoReason:
		end := occurrence.Settlement{Outcome: occurrence.Dropped, Reason: reason}
		s.refuse(o, &t, end)
		s.errorLog.settled(t.Event, end, false)
	case deferred:
		o.Deferred()
	}
}

// add adds the entry of an occurrence to what is pending. It returns why it is dropped, if
// it is, whether Deferred is to be called in place of Settled, and what was evicted for it.
func (s *Sink) add(o *occurrence.Occurrence, t *occurrence.Target, f flowKey, e *counter.Entry, c counter.Claim, delay time.Duration) (_ occurrence.Reason, deferred bool, evicted []counter.Settled) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return occurrence.Shutdown, false, nil
	}
	now := time.Now()
	delay = max(0, delay)
	urgent := delay == 0
	refused := o.Deferred != nil && s.isRefused(t, now)
	p, h := s.pendingOf(t.Key, f)
	if s.flushing > 0 || refused || s.isLarge(p) {
		delay = 0
	}
	e.Deferred = delay > 0
	accept := s.acceptanceOf(o, e.Deferred, refused)
	if deferred = accept == acceptNow; deferred {
		e.Notify, e.Acknowledged = nil, true
	} else if accept == acceptHeld && e.Notify == nil {
		e.Notify = func(occurrence.Settlement) {} // so that the entry stays its own until then
	}
	deadline := now.Add(delay)
	if !s.isReplicable(p, h, f, e, c, now, deadline) {
		return occurrence.PendingFull, false, nil
	}
	if s.isFull(h) && !s.absorbs(h, e, c, now, deadline) {
		var ok bool
		if evicted, ok = s.evictFor(f, s.incoming(t, h, e, urgent), now); !ok {
			return occurrence.PendingFull, false, evicted
		}
		p, h = s.pendingOf(t.Key, f)
	}
	if p == nil {
		p = newPendingSeries(counter.New(s.instance, t, s.counterJournal()))
		p.unknown = !s.recall(p.counter)
		p.job.Tenant = f.tenant
		s.pending[t.Key] = p
	}
	if h == nil {
		h = s.fair.allocate(f, p)
	}
	e.Owner = h
	h.acknowledged = h.acknowledged || deferred
	s.sequence += 1 + s.gaps.Uint64()%maxGap
	if p.refused && e.Notify != nil {
		p.retryAt = now // its caller gets the cached refusal at once
	}
	p.deadlines = p.deadlines.add(now, p.deadlineFor(o.User, now, deadline), s.sequence, s.options.RetryFor/deadlineGrains)
	g := p.counter.Add(s.sequence, p.deadlines.sealed(), e, c)
	if g.IsNew {
		p.counter.Newest().Generation = s.generations.enter()
	}
	h.entries += g.Entries
	h.size += g.Size
	for _, generation := range g.Left {
		s.leaveGeneration(generation)
	}
	s.fair.charge(h.flow, usage{bytes: g.Bytes})
	s.total.bytes += g.Bytes
	s.total.occurrences += e.Weight
	s.recorded(p, f, e, accept, o.Deferred, now)
	s.reschedule(p, now)
	s.fair.update(h)
	return occurrence.NoReason, deferred, evicted
}

// recorded records an occurrence that was added for its followers. The mutex must be held.
func (s *Sink) recorded(p *pendingSeries, f flowKey, e *counter.Entry, accept acceptance, deferred func(), now time.Time) {
	if s.journal == nil {
		return
	}
	s.journal.Recorded(e.Weight, f.tenant)
	if accept == acceptHeld {
		s.unacknowledged.add(&unheld{
			position: s.journal.SendNow(), sequence: s.sequence, counter: p.counter, accept: deferred,
		}, e.Deferred, now)
	}
}

// pendingOf returns a pending series and the allocation of a flow in it, each nil if there
// is none.
func (s *Sink) pendingOf(key occurrence.Key, f flowKey) (*pendingSeries, *allocation) {
	p := s.pending[key]
	if p == nil {
		return nil, nil
	}
	return p, p.allocation(f)
}

// Pending is what a sink has not written yet.
type Pending struct {
	Series      int
	Occurrences int64
}

// totals are the sums over what is pending. They include what has settled until that is
// reported to the ledger.
type totals struct {
	occurrences, bytes int64
}

// Pending returns what is not reported to the ledger yet.
func (s *Sink) Pending() Pending {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Pending{Series: len(s.pending), Occurrences: s.total.occurrences}
}
