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
	// AcknowledgeReplicated: as soon as a follower holds it, or it is written. While no other
	// replica is known, at once if its write is deferred; see Options.OtherReplica.
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
	case how == AcknowledgeReceived, deferred && !(how == AcknowledgeReplicated && s.knowsReplica()):
		return acceptNow
	case how == AcknowledgeReplicated && s.journal != nil:
		return acceptHeld
	default:
		return acceptNever
	}
}

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
	// unheld are those whose writes are deferred, and unwritten those of them that wait for their early
	// write, both in the order in which their waits end. alarm calls onUnheld then.
	unheld, unwritten list.List
	alarm             *time.Timer
}

// unheld is one of them.
type unheld struct {
	position, sequence uint64
	counter            *counter.Counter
	accept             func()
	// waits is its element of list, until a time; both are nil if its write is not deferred.
	waits *list.Element
	list  *list.List
	until time.Time
}

func newUnacknowledged(onUnheld func()) *unacknowledged {
	u := &unacknowledged{bySequence: make(map[uint64]*list.Element), alarm: time.AfterFunc(time.Hour, onUnheld)}
	u.alarm.Stop() // until one waits
	return u
}

func (u *unacknowledged) add(w *unheld, deferred bool, now time.Time) {
	u.bySequence[w.sequence] = u.order.PushBack(w)
	if !deferred {
		return
	}
	w.until, w.list = now.Add(followerTimeout), &u.unheld
	w.waits = w.list.PushBack(w)
	if u.unheld.Len() == 1 {
		u.setAlarm(now)
	}
}

// remove removes an occurrence that has settled, if it is there.
func (u *unacknowledged) remove(sequence uint64) {
	if e := u.bySequence[sequence]; e != nil {
		u.unlink(e.Value.(*unheld))
	}
}

func (u *unacknowledged) unlink(w *unheld) *unheld {
	u.order.Remove(u.bySequence[w.sequence])
	delete(u.bySequence, w.sequence)
	if w.waits != nil {
		w.list.Remove(w.waits)
	}
	return w
}

// upTo removes and returns those that followers hold at a position.
func (u *unacknowledged) upTo(position uint64) (out []*unheld) {
	for e := u.order.Front(); e != nil && e.Value.(*unheld).position <= position; e = u.order.Front() {
		out = append(out, u.unlink(e.Value.(*unheld)))
	}
	return out
}

// overdue returns the first of a list if its wait is over, otherwise nil.
func (u *unacknowledged) overdue(l *list.List, now time.Time) *unheld {
	if e := l.Front(); e != nil && !e.Value.(*unheld).until.After(now) {
		return e.Value.(*unheld)
	}
	return nil
}

// setAlarm sets the alarm for the end of the next wait.
func (u *unacknowledged) setAlarm(now time.Time) {
	var next time.Time
	for _, l := range []*list.List{&u.unheld, &u.unwritten} {
		if e := l.Front(); e != nil && (next.IsZero() || e.Value.(*unheld).until.Before(next)) {
			next = e.Value.(*unheld).until
		}
	}
	if !next.IsZero() {
		u.alarm.Reset(next.Sub(now))
	}
}

// onAcknowledged is called when what followers hold has changed.
func (s *Sink) onAcknowledged() {
	s.mu.Lock()
	calls := s.acceptHeld()
	s.sessions.acknowledged.Notify()
	s.mu.Unlock()
	runAll(calls)
}

// acceptHeld accepts what followers hold now, and returns the callbacks. The mutex must be held.
func (s *Sink) acceptHeld() []func() {
	return s.acceptAll(s.unacknowledged.upTo(s.journal.State().Position))
}

func (s *Sink) acceptAll(all []*unheld) (calls []func()) {
	for _, w := range all {
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
func runAll(calls []func()) { forEach(calls, func(call *func()) { (*call)() }) }

// forEach calls a function for each item, even if one call ends the goroutine.
func forEach[T any](items []T, call func(*T)) {
	done := 0
	defer func() {
		if done < len(items) {
			forEach(items[done:], call)
		}
	}()
	for done < len(items) {
		done++
		call(&items[done-1])
	}
}
