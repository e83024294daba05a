// Package sink makes the apiserver agree with what was recorded: the Event of
// every series comes to hold the count that it should.
//
// A sink works as a controller does. Desired are the pending occurrences of
// each series in memory, observed is the stored Event, and a schedule has workers
// bring one closer to the other, many series at once. At most one request per
// series is in flight; what arrives meanwhile goes with the next one. Why the
// counts stay exact while answers are lost and several sinks write the same
// Event is told in docs/counting.md.
//
// How many series are worked on at once follows what the apiserver shows that it
// can take. Namespaces take turns, and none may use all slots, so one in which
// every request hangs delays no other.
//
// A write can wait: whoever adds an occurrence says for how long, and the sink
// holds what is pending until then. The latest word of a user counts; it does not
// put off what another user waits for. What is pending when a write is made goes
// with it.
//
// Add never blocks on I/O. The sink owns its goroutines; Close ends them, and
// settles whatever could not be written by then.
package sink

import (
	"context"
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/eventd/eventd/internal/fairlru"
	"github.com/eventd/eventd/internal/grace"
	"github.com/eventd/eventd/pkg/ledger"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/counter"
	"github.com/eventd/eventd/pkg/sink/internal/scheduler"
)

// Sink writes occurrences to one apiserver. All methods are safe for use by
// many goroutines.
type Sink struct {
	options  Options
	client   Client
	ledger   *ledger.Ledger
	instance counter.Contributor
	metrics  *metrics
	errorLog *errorLog

	// stop ends requests and waits that Close has no more time for.
	stop      context.CancelCauseFunc
	noWorkers chan struct{} // closed when the sink is stopped and they have ended
	ended     chan struct{} // closed when Close is done

	// mu guards all fields below, and the series that they lead to. While a series is in
	// work, only its worker reads and changes its counter, except for Add: so the worker
	// plans a write without mu (counter.Draft.Plan). It holds mu to begin and to commit
	// the plan and to report the answer. No request is made and no code of others is run
	// with mu held.
	mu        sync.Mutex
	scheduler *scheduler.Scheduler
	ready     sync.Cond   // on mu: Dequeue may return a job
	alarm     *time.Timer // wakes a worker when Dequeue may return a job
	alarmAt   time.Time   // zero if the alarm is not set
	stopped   bool        // workers return
	// workers are those that Close waits for, until they are forsaken.
	workers  map[*worker]struct{}
	forsaken bool
	requests *requests
	closed   bool
	// sequence is that of the newest occurrence. Nobody can guess the next one, so
	// that nobody can prepare an Event that has it in the count already.
	sequence uint64
	gaps     *mathrand.ChaCha8
	pending  map[occurrence.Key]*series
	held     held
	fair     *fairShare
	access   *accesses
	// byDeadline and byRecorded have all pending series, by the deadline of the next write
	// and by when the oldest occurrence was recorded.
	byDeadline, byRecorded ages
	deferred               int                                                      // series that wait for their due time
	idle                   *fairlru.Cache[occurrence.Key, string, *counter.Counter] // in groups of one namespace
	generations            *flushGenerations
	flushing               int           // calls of Flush that wait
	drained                chan struct{} // closed when a generation is over; nil if nobody waits
}

// New starts a sink that counts in the given ledger. The context carries the
// logger and values only; Close stops the sink. An error is one of the options
// or of registering metrics.
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
		}),
		pending:     make(map[occurrence.Key]*series),
		idle:        fairlru.New[occurrence.Key, string, *counter.Counter](int64(o.MaxIdleSeries), nil),
		generations: newFlushGenerations(),
		ended:       make(chan struct{}),
		noWorkers:   make(chan struct{}),
		workers:     make(map[*worker]struct{}),
		requests:    newRequests(o.Concurrency),
		errorLog:    newErrorLog(klog.FromContext(ctx), l),
	}
	s.ready.L = &s.mu
	s.fair = newFairShare(&s.options)
	s.alarm = time.AfterFunc(time.Hour, s.ring)
	s.alarm.Stop() // until something waits
	// Whoever scrapes them may do so at once.
	var err error
	if s.metrics, err = newMetrics(s, o.Registerer); err != nil {
		return nil, err
	}
	if s.access, err = newAccesses(c); err != nil {
		return nil, err
	}
	ctx, s.stop = context.WithCancelCause(context.WithoutCancel(ctx))
	for range o.Concurrency {
		s.startWorker(ctx)
	}
	return s, nil
}

// maxGap is the most by which sequences go up: it takes 10,000 occurrences a second
// for a hundred years to use them up.
const maxGap = 1 << 20

// newGaps returns a source of random gaps.
func newGaps() *mathrand.ChaCha8 {
	var seed [32]byte
	rand.Read(seed[:]) // never fails
	return mathrand.NewChaCha8(seed)
}

// Add takes an occurrence that is to be counted on the target, and whose write
// can wait for the given time: 0 is to write it now. It returns at once; the
// outcome is told to the ledger and to whoever waits.
func (s *Sink) Add(o *occurrence.Occurrence, t occurrence.Target, delay time.Duration) {
	e, c := counter.NewEntry(o, &t)
	f := flowKey{t.Event.Namespace, occurrence.TenantOf(o.User)}
	reason, deferred, evicted := s.take(o, &t, f, &e, c, delay)
	s.count(evicted) // before any code of others, which may never return
	defer s.inform(evicted)
	switch {
	case reason != occurrence.NoReason:
		end := occurrence.Settlement{Outcome: occurrence.Dropped, Reason: reason}
		s.ledger.Settle(o, end)
		s.errorLog.settled(t.Event, end)
	case deferred:
		o.Deferred()
	}
}

// take holds the entry of an occurrence until it is written. It tells whether whoever
// waits for it, and may be told so, need not wait any longer. What was evicted for it has
// settled.
func (s *Sink) take(o *occurrence.Occurrence, t *occurrence.Target, f flowKey, e *counter.Entry, c counter.Claim, delay time.Duration) (_ occurrence.Reason, deferred bool, evicted []counter.Settled) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return occurrence.Shutdown, false, nil
	}
	now := time.Now()
	delay = max(0, delay)
	urgent := delay == 0
	if s.flushing > 0 {
		delay = 0
	}
	e.Deferred = delay > 0
	if deferred = o.Deferred != nil && e.Deferred; deferred {
		e.Notify, e.Acknowledged = nil, true
	}
	due := now.Add(delay)
	owed, h := s.pendingOf(t.Key, f)
	if s.full(h) && !s.takesNothing(h, e, c, now, due) {
		var ok bool
		if evicted, ok = s.makeRoom(f, s.newcomer(t, h, e, urgent), now); !ok {
			return occurrence.PendingFull, false, evicted
		}
		owed, h = s.pendingOf(t.Key, f)
	}
	if owed == nil {
		owed = newSeries(s.account(t))
		owed.job.Tenant = f.tenant
		s.pending[t.Key] = owed
	}
	if h == nil {
		h = s.fair.hold(f, owed)
	}
	e.Owner = h
	h.acknowledged = h.acknowledged || deferred
	s.sequence += 1 + s.gaps.Uint64()%maxGap
	if owed.refused && e.Notify != nil {
		owed.retryAt = now // somebody waits for what is known
	}
	owed.deadlines = owed.deadlines.add(now, owed.noLater(o.User, now, due), s.sequence, s.options.RetryFor/deadlineGrains)
	isNew, bytes := owed.counter.Add(s.sequence, owed.deadlines.sealed(), e, c)
	if isNew {
		owed.counter.Newest().Generation = s.generations.enter()
		h.entries++
	}
	s.fair.charge(h.flow, usage{bytes: bytes})
	s.held.bytes += bytes
	s.held.occurrences += e.Weight
	s.arrange(owed, now)
	s.fair.update(h)
	return occurrence.NoReason, deferred, evicted
}

// pendingOf returns a series and what a flow has pending of it, each nil if there is
// nothing.
func (s *Sink) pendingOf(key occurrence.Key, f flowKey) (*series, *holding) {
	owed := s.pending[key]
	if owed == nil {
		return nil, nil
	}
	return owed, owed.holding(f)
}

// account returns what is known of a series that owes nothing yet.
func (s *Sink) account(t *occurrence.Target) *counter.Counter {
	if a, ok := s.idle.Get(t.Key); ok {
		s.idle.Remove(t.Key)
		return a
	}
	return counter.New(s.instance, t)
}

// Pending is what a sink owes.
type Pending struct {
	Series      int
	Occurrences int64
}

// held is what a sink holds. What has settled is part of it until the ledger
// has it.
type held struct {
	occurrences, bytes int64
}

// Pending tells what is not in the ledger yet.
func (s *Sink) Pending() Pending {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Pending{Series: len(s.pending), Occurrences: s.held.occurrences}
}

// Flush waits until everything that had been added has settled, or until the
// context ends; then it returns what is still owed. It goes on being owed.
// Meanwhile no write waits for its due time. Whoever waits for an outcome may be
// told after Flush has returned.
func (s *Sink) Flush(ctx context.Context) Pending {
	generation := s.beginFlush()
	defer s.endFlush()
	for {
		drained, ok := s.flushed(generation)
		if ok {
			return Pending{}
		}
		select {
		case <-drained:
		case <-ctx.Done():
			return s.Pending()
		}
	}
}

// flushed tells whether a generation is over, or what to wait for.
func (s *Sink) flushed(generation uint64) (drained <-chan struct{}, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.generations.isOver(generation) {
		return nil, true
	}
	if s.drained == nil {
		s.drained = make(chan struct{})
	}
	return s.drained, false
}

func (s *Sink) beginFlush() (generation uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flushing++
	now := time.Now()
	for _, owed := range s.pending {
		owed.deadlines.forward(now)
		s.arrange(owed, now)
	}
	return s.generations.end()
}

func (s *Sink) endFlush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flushing--
}

// Close takes nothing new, writes what is owed until the context ends, ends all
// requests and goroutines, and settles the rest as dropped or uncertain. It
// returns what it could not write. A further call waits for the first to end,
// or for its own context, and returns nothing.
//
// Requests, callbacks and loggers that do not return within grace.Period of the end
// of the context are abandoned: what they were for is settled, they touch nothing
// when they return, and only their goroutines stay until then. So Close takes no
// longer than two of these periods after the end of the context.
func (s *Sink) Close(ctx context.Context) Pending {
	s.mu.Lock()
	first := !s.closed
	s.closed = true
	s.mu.Unlock()
	if !first {
		select {
		case <-s.ended:
		case <-ctx.Done():
		}
		return Pending{}
	}
	defer close(s.ended)
	s.Flush(ctx)
	s.stopWorkers(context.Cause(ctx))

	left := s.Pending()
	var out []counter.Settled
	s.mu.Lock()
	for _, owed := range s.pending {
		given := owed.counter.Drop(s.sequence, occurrence.Shutdown, nil)
		s.release(owed)
		out = append(out, given...)
	}
	s.pending, s.idle = nil, nil // somebody may hold on to the sink
	s.mu.Unlock()
	if s.count(out); isAwaited(out) {
		grace.Run(func() { notify(out) })
	}
	return left
}

func (s *Sink) stopWorkers(cause error) {
	s.mu.Lock()
	s.stopped = true
	s.alarm.Stop()
	s.ready.Broadcast()
	s.mu.Unlock()
	s.stop(cause)
	if grace.Wait(s.noWorkers) {
		return
	}
	s.mu.Lock()
	s.abandonAll()
	s.mu.Unlock()
	<-s.noWorkers // the others run code of our own
}

// tell reports outcomes to the ledger, to whoever waits, and to the log. The mutex
// must not be held, since those who wait may look at the sink. It returns false if
// the worker was abandoned meanwhile.
func (w *worker) tell(out []counter.Settled) bool {
	w.sink.count(out)
	if !isAwaited(out) && !slices.ContainsFunc(out, func(e counter.Settled) bool { return logReason(e.End) != "" }) {
		return true
	}
	return w.callOut(func() { w.sink.inform(out) })
}

// inform tells whoever waits, and the log. It runs code of others.
func (s *Sink) inform(out []counter.Settled) {
	notify(out)
	for i := range out {
		s.errorLog.settled(out[i].Newest.Event, out[i].End)
	}
}

// isAwaited tells whether somebody waits for one of the outcomes.
func isAwaited(out []counter.Settled) bool {
	return slices.ContainsFunc(out, func(e counter.Settled) bool { return e.Notify != nil })
}

// count reports outcomes to the ledger.
func (s *Sink) count(out []counter.Settled) {
	if len(out) == 0 {
		return
	}
	var weight, bytes int64
	for i := range out {
		e := &out[i]
		weight += e.Weight
		bytes += e.Bytes
		if e.End.Counted() {
			s.ledger.Add(occurrence.Created, occurrence.NoReason, e.Created)
			s.ledger.Add(e.Merged, occurrence.NoReason, e.Written)
			s.ledger.Add(occurrence.Replayed, occurrence.NoReason, e.Replayed)
			s.ledger.Add(occurrence.Dropped, occurrence.PatchForbidden, e.Forbidden)
		} else {
			s.ledger.Add(e.End.Outcome, e.End.Reason, e.Weight)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held.bytes -= bytes
	s.held.occurrences -= weight
	over := false
	for i := range out {
		over = s.generations.leave(out[i].Generation) || over
		if out[i].Owner != nil {
			s.fair.settle(out[i].Entry)
		}
	}
	if over && s.drained != nil {
		close(s.drained)
		s.drained = nil
	}
}

// notify tells whoever waits; all of them, though one of them may end the goroutine.
func notify(out []counter.Settled) {
	told := 0
	defer func() {
		if told < len(out) {
			notify(out[told:])
		}
	}()
	for told < len(out) {
		e := &out[told]
		told++
		if e.Notify != nil {
			e.Notify(e.End)
		}
	}
}
