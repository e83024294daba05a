package sink

import (
	"container/list"
	"errors"
	"time"

	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/counter"
)

// While another replica is known, an occurrence whose write is deferred is not accepted before a
// follower holds it. One that no follower holds within followerTimeout is written at once, with all
// that its series has pending. If there was such an early write within earlyWriteInterval, too many
// others are under way, or it does not succeed within earlyWriteTimeout, the occurrence is refused. So a
// standby that is slow or away delays no caller by more than that, and costs few writes.

const (
	followerTimeout    = time.Second
	earlyWriteTimeout  = 500 * time.Millisecond
	earlyWriteInterval = 10 * time.Second
)

// errMayBeRecorded: no follower holds an occurrence, and it may be written all the same.
var errMayBeRecorded = errors.New("no other replica holds it in time")

// knowsReplica reports whether there is another replica that may be elected. The mutex must be held.
func (s *Sink) knowsReplica() bool {
	return s.journal != nil && (s.journal.HasStreams() || s.options.OtherReplica != nil && s.options.OtherReplica())
}

// onUnheld is called when an occurrence may have waited for too long.
func (s *Sink) onUnheld() {
	s.mu.Lock()
	calls, out := s.endWaits(time.Now())
	s.mu.Unlock()
	s.count(out)
	defer runAll(calls)
	s.notify(out)
}

// endWaits writes, refuses or accepts what has waited for too long. It returns callbacks, and what has
// settled. The mutex must be held.
func (s *Sink) endWaits(now time.Time) (calls []func(), out []counter.Settled) {
	u := s.unacknowledged
	for w := u.overdue(&u.unheld, now); w != nil; w = u.overdue(&u.unheld, now) {
		switch {
		case !s.knowsReplica():
			calls = append(calls, s.acceptAll([]*unheld{u.unlink(w)})...)
		case s.isWrittenNow(w, now):
			u.unheld.Remove(w.waits)
			w.until, w.list = now.Add(earlyWriteTimeout), &u.unwritten
			w.waits = w.list.PushBack(w)
		default:
			calls, out = s.refuseUnheld(w, now, calls, out)
		}
	}
	for w := u.overdue(&u.unwritten, now); w != nil; w = u.overdue(&u.unwritten, now) {
		calls, out = s.refuseUnheld(w, now, calls, out)
	}
	u.setAlarm(now)
	return calls, out
}

// isWrittenNow reports whether the series of an occurrence is written now, which it begins if it may.
// The mutex must be held.
func (s *Sink) isWrittenNow(w *unheld, now time.Time) bool {
	p := s.pending[w.counter.Key]
	if p == nil || p.counter != w.counter || !p.deadlines.first().After(now) {
		return true
	}
	// More would not be done in time: their callers had left, and the writes were in vain.
	if s.unacknowledged.unwritten.Len() >= 2*s.scheduler.Limit() || !s.early.add(w.counter.Key, now) {
		return false
	}
	s.metrics.early.Inc()
	p.deadlines.bringForward(now)
	s.reschedule(p, now)
	return true
}

// refuseUnheld withdraws an occurrence. If others may have it already, it stays pending, and its caller
// is told so. The mutex must be held.
func (s *Sink) refuseUnheld(w *unheld, now time.Time, calls []func(), out []counter.Settled) ([]func(), []counter.Settled) {
	s.unacknowledged.unlink(w)
	p := s.pending[w.counter.Key]
	if p != nil && p.counter == w.counter && !p.job.Running() {
		if withdrawn := w.counter.Withdraw(w.sequence, occurrence.NotReplicated); withdrawn != nil {
			if s.release(p) {
				s.scheduler.Remove(&p.job, now)
			} else {
				s.reschedule(p, now)
			}
			return calls, append(out, withdrawn...)
		}
	}
	if notify := w.counter.Detach(w.sequence); notify != nil {
		calls = append(calls, func() { notify(occurrence.Settlement{Outcome: occurrence.Uncertain, Err: errMayBeRecorded}) })
	}
	return calls, out
}

// earlyWrites are the series that were written early within earlyWriteInterval: at most some thousand,
// since few early writes are under way. The sink's mutex guards it.
type earlyWrites struct {
	order list.List // of earlyWrite
	known map[occurrence.Key]struct{}
}

type earlyWrite struct {
	key occurrence.Key
	at  time.Time
}

// add adds a series, unless it is there.
func (e *earlyWrites) add(key occurrence.Key, now time.Time) bool {
	for first := e.order.Front(); first != nil && now.Sub(first.Value.(earlyWrite).at) >= earlyWriteInterval; first = e.order.Front() {
		delete(e.known, e.order.Remove(first).(earlyWrite).key)
	}
	if _, ok := e.known[key]; ok {
		return false
	}
	if e.known == nil {
		e.known = make(map[occurrence.Key]struct{})
	}
	e.known[key] = struct{}{}
	e.order.PushBack(earlyWrite{key, now})
	return true
}
