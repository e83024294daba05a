package sink

import (
	"container/list"
	"time"

	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/counter"
)

// Acknowledgement is when an occurrence with Deferred is accepted, and Deferred is called. In a
// namespace that is known to refuse new Events, it waits for that refusal, except with
// AcknowledgeCommitted.
type Acknowledgement uint8

const (
	// AcknowledgeCommitted: at once if its write is deferred; otherwise it waits for its write.
	AcknowledgeCommitted Acknowledgement = iota
	// AcknowledgeReplicated: as soon as a follower holds it, or it is written. While no
	// follower acknowledges in time, at once if its write is deferred.
	AcknowledgeReplicated
	// AcknowledgeReceived: at once.
	AcknowledgeReceived
)

// acceptance is when Deferred of an occurrence is called.
type acceptance uint8

const (
	acceptNever acceptance = iota
	acceptNow
	acceptHeld // when a follower holds it
)

// acceptanceOf returns when an occurrence is accepted. refused: its namespace refuses it. The
// mutex must be held.
func (s *Sink) acceptanceOf(o *occurrence.Occurrence, deferred, refused bool) acceptance {
	how := s.options.Acknowledge
	switch {
	case o.Deferred == nil || refused:
		return acceptNever
	case how == AcknowledgeReceived, deferred && !(how == AcknowledgeReplicated && s.hasFollower()):
		return acceptNow
	case how == AcknowledgeReplicated && s.journal != nil:
		return acceptHeld
	default:
		return acceptNever
	}
}

// hasFollower reports whether a follower holds everything and acknowledges in time. The mutex must
// be held.
func (s *Sink) hasFollower() bool { return s.journal != nil && s.journal.State().Complete > 0 }

// isRefused reports whether an occurrence of a target is known to be refused now, because of its
// namespace. The mutex must be held.
func (s *Sink) isRefused(t *occurrence.Target, now time.Time) bool {
	if s.options.Acknowledge == AcknowledgeCommitted || s.isRepeat(t) {
		return false
	}
	r := s.scheduler.RefusalOf(t.Event.Namespace)
	return r.IsSet() && r.Until.After(now)
}

// unacknowledged are occurrences whose callers wait until a follower holds them, in the order of
// their positions. The sink's mutex guards it.
type unacknowledged struct {
	order      list.List
	bySequence map[uint64]*list.Element
	deferred   int // of them
}

// unheld is one of them.
type unheld struct {
	position, sequence uint64
	counter            *counter.Counter
	accept             func()
	deferred           bool // its write is
}

func newUnacknowledged() *unacknowledged {
	return &unacknowledged{bySequence: make(map[uint64]*list.Element)}
}

func (u *unacknowledged) add(w *unheld) {
	u.bySequence[w.sequence] = u.order.PushBack(w)
	if w.deferred {
		u.deferred++
	}
}

// remove removes an occurrence that has settled, if it is there.
func (u *unacknowledged) remove(sequence uint64) {
	if e := u.bySequence[sequence]; e != nil {
		u.unlink(e)
	}
}

func (u *unacknowledged) unlink(e *list.Element) *unheld {
	w := u.order.Remove(e).(*unheld)
	delete(u.bySequence, w.sequence)
	if w.deferred {
		u.deferred--
	}
	return w
}

// upTo removes and returns those that followers hold at a position.
func (u *unacknowledged) upTo(position uint64) (out []*unheld) {
	for e := u.order.Front(); e != nil && e.Value.(*unheld).position <= position; e = u.order.Front() {
		out = append(out, u.unlink(e))
	}
	return out
}

// allDeferred removes and returns those whose writes are deferred.
func (u *unacknowledged) allDeferred() (out []*unheld) {
	for e := u.order.Front(); e != nil && u.deferred > 0; {
		next := e.Next()
		if e.Value.(*unheld).deferred {
			out = append(out, u.unlink(e))
		}
		e = next
	}
	return out
}

// onAcknowledged is called when what followers hold has changed.
func (s *Sink) onAcknowledged() {
	s.mu.Lock()
	calls := s.acceptHeld()
	if s.sessions.acknowledged != nil {
		close(s.sessions.acknowledged)
		s.sessions.acknowledged = nil
	}
	s.mu.Unlock()
	runAll(calls)
}

// acceptHeld accepts what followers hold now, and what waits for followers of which there are none
// any more. It returns the callbacks. The mutex must be held.
func (s *Sink) acceptHeld() (calls []func()) {
	state := s.journal.State()
	held := s.unacknowledged.upTo(state.Position)
	if state.Complete == 0 {
		held = append(held, s.unacknowledged.allDeferred()...)
	}
	for _, w := range held {
		if s.acknowledge(w) {
			calls = append(calls, w.accept)
		}
	}
	return calls
}

// acknowledge takes the callback from an entry. It returns false if that has settled. The mutex
// must be held.
func (s *Sink) acknowledge(w *unheld) bool {
	e := w.counter.Acknowledge(w.sequence)
	if e == nil {
		return false
	}
	h := e.Owner.(*allocation)
	h.acknowledged = true
	s.fair.update(h)
	return true
}

// runAll runs all functions, even if one of them ends the goroutine.
func runAll(calls []func()) {
	done := 0
	defer func() {
		if done < len(calls) {
			runAll(calls[done:])
		}
	}()
	for done < len(calls) {
		done++
		calls[done-1]()
	}
}
