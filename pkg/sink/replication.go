package sink

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/eventd/eventd/internal/grace"
	"github.com/eventd/eventd/internal/instrument"
	"github.com/eventd/eventd/internal/notify"
	"github.com/eventd/eventd/pkg/sink/internal/counter"
	"github.com/eventd/eventd/pkg/sink/internal/replication"
)

// With Options.Holdings, a sink is the leader of the replicas that follow it: they hold what it has
// pending, so that a client can be answered before the write (Options.Acknowledge). At its end, the
// next leader writes that in its name. docs/replication-protocol.md specifies the protocol.

// errNoHoldings: the sink was started without Options.Holdings.
var errNoHoldings = errors.New("the sink does not replicate")

// errClosed ends the sessions of a sink that is closed.
var errClosed = replication.ErrClosed

// HoldingsOptions are the options of NewHoldings.
type HoldingsOptions struct {
	// MaxBytes limits the memory of what is held: Options.HeldBytes for each contributor. A session
	// that would exceed it ends.
	MaxBytes int64
	// Registerer registers the metrics; nil leaves them unregistered.
	Registerer prometheus.Registerer
}

// Holdings are what this process holds of what the sinks of other replicas have pending. A process has
// one, which its sink shares (Options.Holdings). All methods are safe for concurrent use.
type Holdings struct{ held *replication.Holdings }

// NewHoldings returns empty Holdings. The error is that of an invalid option or of registering
// metrics.
func NewHoldings(o HoldingsOptions) (*Holdings, error) {
	if o.MaxBytes <= 0 {
		return nil, fmt.Errorf("holdings options: MaxBytes must be greater than 0, got %d", o.MaxBytes)
	}
	h := &Holdings{held: replication.NewHoldings(o.MaxBytes)}
	return h, registerHoldings(h.held, o.Registerer)
}

// Follow holds what the sink at the other end of a session has pending, and hands over what is held
// of other sinks. It returns an error when the context ends or the session fails, and closes the
// session. What is held then stays. Within two grace periods after the end of the context it
// returns though calls of the session do not.
func (h *Holdings) Follow(ctx context.Context, leader io.ReadWriteCloser) error {
	return h.held.Follow(ctx, leader)
}

// AwaitHandover returns nil when another process has all that this one holds: the one in whose sink
// it is pending, or a leader that has accepted it. Otherwise it returns the error of the context
// when that ends.
func (h *Holdings) AwaitHandover(ctx context.Context) error { return h.held.AwaitHandover(ctx) }

// sessions are those of a sink with followers.
type sessions struct {
	ctx          context.Context
	cancel       context.CancelCauseFunc // ends them
	open         int
	closed       bool            // by Close
	none         chan struct{}   // closed when closed is set and none is open
	acknowledged notify.Notifier // a follower has acknowledged something
}

// initReplication makes the journal.
func (s *Sink) initReplication(ctx context.Context) {
	if s.options.Holdings == nil {
		return
	}
	s.sessions.ctx, s.sessions.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	s.sessions.none = make(chan struct{})
	s.journal = replication.NewJournal(s.instance, replication.Owner{
		Mutex: &s.mu, Pending: s.ownCounters, Changed: s.onAcknowledged,
	})
	s.adoptions = &adoptions{of: make(map[counter.Contributor]*adoption), wake: make(chan struct{}, 1), ended: make(chan struct{})}
}

// ownCounters returns the pending counters of the own instance. The mutex must be held.
func (s *Sink) ownCounters() iter.Seq[*counter.Counter] {
	return func(yield func(*counter.Counter) bool) {
		for _, p := range s.pending {
			if p.adopted == nil && !yield(p.counter) {
				return
			}
		}
	}
}

// maxDeferredSize is the Size from which on a series with a journal is written at once. Followers
// hold no series that one write does not take.
const maxDeferredSize = counter.MaxBatch / 4

// isLarge reports whether a series is written at once, though its deadline lies in the future. The
// mutex must be held.
func (s *Sink) isLarge(p *pendingSeries) bool {
	return s.journal != nil && p != nil && p.counter.Size() >= maxDeferredSize
}

// isReplicable reports whether followers can hold an occurrence of a flow with a deadline, too. A
// flow may use as much of what a series may have as it leaves to others, and a tenant as much of
// the memory of changes that followers have not acknowledged. So nobody ends a stream for others.
// The mutex must be held.
func (s *Sink) isReplicable(p *pendingSeries, h *allocation, f flowKey, e *counter.Entry, c counter.Claim, now, at time.Time) bool {
	if s.journal == nil {
		return true
	}
	if s.isLarge(p) {
		size := 0
		if h != nil {
			e.Owner, size = h, h.size
		}
		growth := p.counter.GrowthOf(s.sealedAfter(p, now, at), e, c)
		if growth > 0 && size+growth > counter.MaxBatch-p.counter.Size()-growth {
			return false
		}
	}
	return s.journal.HasRoom(f.tenant, e.Estimate(), now)
}

// counterJournal returns what counters are made with. A nil *Journal is no nil counter.Journal.
func (s *Sink) counterJournal() counter.Journal {
	if s.journal == nil {
		return nil
	}
	return s.journal
}

// Serve sends what the sink has pending to the follower at the other end of a session, and takes over
// what that hands over. It returns an error when the context ends, the session fails or the sink
// is closed, and closes the session. Each follower has one session. Within two grace periods after
// the end of the context it returns though calls of the session do not.
func (s *Sink) Serve(ctx context.Context, follower io.ReadWriteCloser) error {
	if err := s.enterSession(); err != nil {
		grace.Run(func() { follower.Close() })
		return err
	}
	defer s.leaveSession()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.sessions.ctx, func() { cancel(context.Cause(s.sessions.ctx)) })()
	err := replication.Serve(ctx, s.journal, s.options.Holdings.held, follower)
	if errors.Is(err, replication.ErrTooSlow) {
		s.errorLog.tooSlow(err)
	}
	return err
}

func (s *Sink) enterSession() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.journal == nil {
		return errNoHoldings
	}
	if s.sessions.closed {
		return errClosed
	}
	s.sessions.open++
	return nil
}

func (s *Sink) leaveSession() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sessions.open--; s.sessions.open == 0 && s.sessions.closed {
		close(s.sessions.none)
	}
}

// endSessions ends the sessions: those whose followers acknowledge everything within a grace
// period at once, and then all.
func (s *Sink) endSessions() {
	if s.journal == nil {
		return
	}
	s.mu.Lock()
	s.sessions.closed = true
	s.journal.Close()
	if s.sessions.open == 0 {
		close(s.sessions.none)
	}
	s.mu.Unlock()
	grace.Wait(s.sessions.none)
	s.sessions.cancel(errClosed)
	<-s.adoptions.ended // it runs no external code
}

// AwaitFollower returns nil when nothing is pending, or a follower holds everything that was
// pending at the time of the call. Otherwise it returns the error of the context when that ends.
func (s *Sink) AwaitFollower(ctx context.Context) error {
	if s.journal == nil {
		return errNoHoldings
	}
	s.mu.Lock()
	position := s.journal.SendNow()
	s.mu.Unlock()
	return s.sessions.acknowledged.Await(ctx, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		state := s.journal.State()
		return s.total.occurrences == 0 || state.Holds && state.Position >= position
	})
}

// registerHoldings registers the metrics of holdings; a nil registerer leaves them out.
func registerHoldings(h *replication.Holdings, r prometheus.Registerer) error {
	set := instrument.New(r)
	set.GaugeFunc("eventd_held_occurrences", "Occurrences of other replicas that this one holds; on the leader, what former ones left.",
		func() float64 { occurrences, _ := h.Usage(); return float64(occurrences) })
	set.GaugeFunc("eventd_held_bytes", "Memory of the occurrences of other replicas.",
		func() float64 { _, bytes := h.Usage(); return float64(bytes) })
	return set.Err()
}

// addFollowers adds the metrics of a sink's followers.
func addFollowers(set *instrument.Set, s *Sink) {
	set.GaugeFunc("eventd_sink_unreplicated_occurrences",
		"Pending occurrences that no follower has acknowledged, also what is sent within 50 ms; all if no follower is complete.",
		s.locked(func() float64 { return float64(s.journal.Unreplicated(s.total.occurrences)) }))
	for state, count := range map[string]func(replication.State) int{
		"complete":    func(f replication.State) int { return f.Complete },
		"catching_up": func(f replication.State) int { return f.CatchingUp },
	} {
		set.With(prometheus.Labels{"state": state}).GaugeFunc("eventd_sink_followers",
			"Followers, by state: complete (they acknowledge everything in time), catching_up.", func() float64 { return float64(count(s.followers())) })
	}
}

func (s *Sink) followers() replication.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.journal.State()
}
