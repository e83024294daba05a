// Package sink makes the apiserver agree with what was recorded: the Event of
// every series comes to hold the count that it should.
//
// A sink works as a controller does. Desired are the pending occurrences of
// each series in memory, observed is the stored Event, and a keyed queue brings
// one series at a time closer, many series at once. At most one request per
// series is in flight; what arrives meanwhile goes with the next one. Why the
// counts stay exact while answers are lost and several sinks write the same
// Event is told in docs/counting.md.
//
// Add never blocks on I/O. The sink owns its goroutines; Close ends them, and
// settles whatever could not be written by then.
package sink

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/time/rate"
	"k8s.io/client-go/util/workqueue"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/internal/ledger"
	"github.com/eventd/eventd/internal/occurrence"
)

// Sink writes occurrences to one apiserver. All methods are safe for use by
// many goroutines.
type Sink struct {
	options  Options
	client   Client
	ledger   *ledger.Ledger
	instance string
	limiter  *rate.Limiter
	metrics  *metrics

	// stop ends requests and waits that Close has no more time for.
	stop    context.CancelCauseFunc
	workers sync.WaitGroup
	queue   workqueue.TypedDelayingInterface[identity.Digest]
	ended   chan struct{} // closed when Close is done

	mu       sync.Mutex
	closed   bool
	sequence uint64
	pending  map[identity.Digest]*series
	held     held
	idle     *simplelru.LRU[identity.Digest, *account]
	drained  chan struct{} // closed when nothing is held; nil if nobody waits
}

// series is one that owes something.
type series struct {
	account *account
	// failures in a row.
	failures int
}

// New starts a sink that counts in the given ledger. The context carries the
// logger and values only; Close stops the sink. An error is one of the options
// or of registering metrics.
func New(ctx context.Context, c Client, l *ledger.Ledger, o Options) (*Sink, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("sink options: %w", err)
	}
	idle, err := simplelru.NewLRU[identity.Digest, *account](o.MaxIdleSeries, nil)
	if err != nil {
		return nil, err
	}
	s := &Sink{
		options:  o,
		client:   c,
		ledger:   l,
		instance: newInstance(),
		limiter:  rate.NewLimiter(rate.Limit(o.QPS), o.Burst),
		pending:  make(map[identity.Digest]*series),
		idle:     idle,
		ended:    make(chan struct{}),
	}
	if s.metrics, err = newMetrics(s, o.Registerer); err != nil {
		return nil, err
	}
	s.queue = workqueue.NewTypedDelayingQueue[identity.Digest]() // starts a goroutine
	ctx, s.stop = context.WithCancelCause(context.WithoutCancel(ctx))
	for range o.Concurrency {
		s.workers.Go(func() { s.work(ctx) })
	}
	return s, nil
}

// newInstance draws the name of a sink instance.
func newInstance() string {
	var b [10]byte
	rand.Read(b[:]) // never fails
	return strings.ToLower(contributorEncoding.EncodeToString(b[:]))
}

// Add takes an occurrence that is to be counted on the target. It returns at
// once; the outcome is told to the ledger and to whoever waits.
func (s *Sink) Add(o *occurrence.Occurrence, t occurrence.Target) {
	if reason := s.take(o, t); reason != occurrence.NoReason {
		s.ledger.Settle(o, occurrence.Settlement{Outcome: occurrence.Dropped, Reason: reason})
	}
}

func (s *Sink) take(o *occurrence.Occurrence, t occurrence.Target) occurrence.Reason {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return occurrence.Shutdown
	}
	if s.held.bytes >= s.options.MaxPendingBytes {
		return occurrence.PendingFull
	}
	owed, ok := s.pending[t.Digest]
	if !ok {
		if len(s.pending) >= s.options.MaxPendingSeries {
			return occurrence.PendingFull
		}
		// From now until it owes nothing, the series is in the queue, in work,
		// or waits for a retry; a further occurrence needs no more than to be
		// added.
		owed = &series{account: s.account(t.Digest)}
		s.pending[t.Digest] = owed
		s.queue.Add(t.Digest)
	}
	s.sequence++
	entries, bytes := owed.account.add(s.sequence, o, t)
	s.held.entries += entries
	s.held.bytes += bytes
	s.held.occurrences += o.Weight
	return occurrence.NoReason
}

// account returns what is known of a series that owes nothing yet.
func (s *Sink) account(digest identity.Digest) *account {
	if a, ok := s.idle.Get(digest); ok {
		s.idle.Remove(digest)
		return a
	}
	return &account{instance: s.instance, digest: digest}
}

// Pending is what a sink owes.
type Pending struct {
	Series      int
	Occurrences int64
}

// held is what a sink holds. What has settled is part of it until the ledger
// has it.
type held struct {
	entries            int
	occurrences, bytes int64
}

// Pending tells what is not in the ledger yet.
func (s *Sink) Pending() Pending {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Pending{Series: len(s.pending), Occurrences: s.held.occurrences}
}

// Flush waits until everything that was added has settled, or until the context
// ends; then it returns what is still owed. It goes on being owed.
func (s *Sink) Flush(ctx context.Context) Pending {
	for {
		s.mu.Lock()
		if s.held.entries == 0 {
			s.mu.Unlock()
			return Pending{}
		}
		if s.drained == nil {
			s.drained = make(chan struct{})
		}
		drained := s.drained
		s.mu.Unlock()
		select {
		case <-drained:
		case <-ctx.Done():
			return s.Pending()
		}
	}
}

// Close takes nothing new, writes what is owed until the context ends, ends all
// requests and goroutines, and settles the rest as dropped or uncertain. It
// returns what it could not write. A further call waits for the first to end,
// or for its own context, and returns nothing.
//
// The client's requests have to end with their context, or Close does not.
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
	s.stop(context.Cause(ctx))
	s.queue.ShutDown()
	s.workers.Wait()

	left := s.Pending()
	var out []settled
	s.mu.Lock()
	for _, owed := range s.pending {
		given := owed.account.giveUp(s.sequence, occurrence.Shutdown, nil)
		s.release(owed)
		out = append(out, given...)
	}
	s.mu.Unlock()
	s.tell(out)
	return left
}

// release ends the pending of a series that owes nothing any more, and tells
// whether it did. The mutex must be held.
func (s *Sink) release(owed *series) bool {
	a := owed.account
	if len(a.pending) > 0 {
		return false
	}
	delete(s.pending, a.digest)
	if a.observed != nil {
		s.idle.Add(a.digest, a)
	}
	return true
}

// tell reports outcomes to the ledger and to whoever waits. The mutex must not
// be held, since those who wait may look at the sink.
func (s *Sink) tell(out []settled) {
	if len(out) == 0 {
		return
	}
	var weight, bytes int64
	for i := range out {
		e := &out[i]
		weight += e.weight
		bytes += e.bytes
		if e.end.Counted() {
			s.ledger.Add(occurrence.Created, occurrence.NoReason, e.created)
			s.ledger.Add(e.target.Merged(), occurrence.NoReason, e.written)
			s.ledger.Add(occurrence.Replayed, occurrence.NoReason, e.replayed)
		} else {
			s.ledger.Add(e.end.Outcome, e.end.Reason, e.weight)
		}
	}
	s.mu.Lock()
	s.held.entries -= len(out)
	s.held.bytes -= bytes
	s.held.occurrences -= weight
	if s.held.entries == 0 && s.drained != nil {
		close(s.drained)
		s.drained = nil
	}
	s.mu.Unlock()
	for i := range out {
		if o := out[i].occurrence; o.Settled != nil {
			o.Settled(out[i].end)
		}
	}
}
