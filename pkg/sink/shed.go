package sink

import (
	"container/list"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/internal/occurrence"
)

// What a sink holds is bounded. When there is no room for an occurrence, it gives
// up what costs the least to lose: a Normal series whose Event is stored already,
// so that only its count stays behind. An occurrence of such a series makes room
// for nobody else. For a Warning, and for what is to be written now, it then gives
// up a Normal series whose write can wait: those that wait for their budget may
// be many, and for long.

// sheddable are the Normal series that can be given up, the newest last: those
// whose Event is stored, and others that wait for their due time.
type sheddable struct{ repeats, waiting list.List }

// update puts a series where it belongs.
func (l *sheddable) update(owed *series) {
	to := l.listFor(owed)
	if to == owed.shedFrom {
		return
	}
	if owed.shedFrom != nil {
		owed.shedFrom.Remove(owed.sheddable)
	}
	if owed.shedFrom = to; to != nil {
		owed.sheddable = to.PushBack(owed)
	}
}

// listFor is the list that a series belongs to, nil if it cannot be given up.
func (l *sheddable) listFor(owed *series) *list.List {
	switch {
	case owed.over || owed.account.eventType == corev1.EventTypeWarning:
		return nil
	case owed.account.observed != nil:
		return &l.repeats
	case owed.deferred:
		return &l.waiting
	default:
		return nil
	}
}

// full tells whether there is no room for an occurrence of the series, which is
// nil if it owes nothing yet. The mutex must be held.
func (s *Sink) full(owed *series) bool {
	return s.held.bytes >= s.options.MaxPendingBytes || owed == nil && len(s.pending) >= s.options.MaxPendingSeries
}

// takesNothing tells whether a series can hold one more occurrence, due at a time,
// without taking more memory: one that becomes part of what is owed already, and
// says no more. The mutex must be held.
func (s *Sink) takesNothing(owed *series, e *entry, c claim, now, at time.Time) bool {
	if owed == nil {
		return false
	}
	newest := *owed.account.newest()
	if c != (claim{}) && !newest.endsAt(c) {
		return false
	}
	// What is asked is what add does; nobody sees the account that it is done to.
	sequence := s.sequence + 1
	dues := slices.Clone(owed.dues).add(now, at, sequence, s.options.RetryFor/dueGrains)
	trial, next := account{carried: owed.account.carried, pending: []entry{newest}}, *e
	_, bytes := trial.add(sequence, dues.apart(), &next, claim{})
	return bytes <= 0
}

// shed gives up series until there is room for an occurrence of another. It
// returns what has settled by that. The mutex must be held.
func (s *Sink) shed(t *occurrence.Target, owed *series, urgent bool, now time.Time) (out []settled) {
	warning := t.Event.Type == corev1.EventTypeWarning
	if !warning && s.isRepeat(t) {
		return nil
	}
	out = s.shedFrom(&s.sheddable.repeats, owed, now)
	if warning || urgent {
		out = append(out, s.shedFrom(&s.sheddable.waiting, owed, now)...)
	}
	return out
}

func (s *Sink) shedFrom(l *list.List, owed *series, now time.Time) (out []settled) {
	for at := l.Back(); at != nil && s.full(owed); {
		victim := at.Value.(*series)
		at = at.Prev()
		if victim == owed || victim.job.state == jobRuns {
			continue // there are no more in work than there are workers
		}
		given := victim.account.giveUp(victim.account.last(), occurrence.PendingFull, nil)
		s.release(victim)
		s.schedule.drop(&victim.job, now)
		for i := range given { // it is told later, and takes no room by then
			s.held.bytes -= given[i].bytes
			given[i].bytes = 0
		}
		out = append(out, given...)
	}
	return out
}

// isRepeat tells whether the Event of a series is known to be stored.
func (s *Sink) isRepeat(t *occurrence.Target) bool {
	if owed := s.pending[t.Key]; owed != nil {
		return owed.account.observed != nil
	}
	_, ok := s.idle.Peek(t.Key)
	return ok
}
