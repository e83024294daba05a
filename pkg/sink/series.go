package sink

import (
	"slices"
	"time"

	"github.com/eventd/eventd/pkg/sink/internal/counter"
	"github.com/eventd/eventd/pkg/sink/internal/scheduler"
)

// series is one that owes something. The sink's mutex guards it.
type series struct {
	counter   *counter.Counter
	deadlines deadlines
	// user is whom the last occurrence is of, and others when the last due falls
	// due at the latest because of what was added for other users, if it has one.
	user   string
	others time.Time
	// failures in a row, and when the next attempt may be made, after them or after
	// what the apiserver said of the namespace.
	failures int
	retryAt  time.Time
	// refused: it waits because of what the apiserver said of its namespace.
	refused bool
	job     scheduler.Job
	// deferred: it waits for its due time.
	deferred bool
	// over: it owes nothing. If it is to owe something again, another one takes
	// its place.
	over bool
	// holdings are what each flow has pending of it; usually there is one.
	holdings []*holding
	// sinceDeadline and sinceRecorded are its elements of Sink.byDeadline and byRecorded.
	sinceDeadline, sinceRecorded age
}

// deadlineGrains is into how many parts the time is divided for which the apiserver
// may not take an occurrence.
const deadlineGrains = 16

func newSeries(a *counter.Counter) *series {
	owed := &series{counter: a, deadlines: make(deadlines, 0, 2)}
	owed.job.Value = owed
	return owed
}

// ready is when the series may be worked on next.
func (owed *series) ready() time.Time {
	if at := owed.deadlines.first(); at.After(owed.retryAt) {
		return at
	}
	return owed.retryAt
}

// noLater returns when a write is due that is to be made at a time because of what
// is added for a user. A user may put off its own write, but only bring forward what
// another waits for: budgets are kept for each, and who has spent its own must not
// hold up the others that report the same.
func (owed *series) noLater(user string, now, at time.Time) time.Time {
	switch last := owed.deadlines.last(); {
	case !last.After(now):
		owed.others = time.Time{}
	case user != owed.user:
		owed.others = last
	}
	owed.user = user
	if !owed.others.IsZero() && owed.others.Before(at) {
		return owed.others
	}
	return at
}

// arrange sees to it that a worker gets the series when it is ready, unless one
// has it. The mutex must be held.
func (s *Sink) arrange(owed *series, now time.Time) {
	s.updateAges(owed)
	s.setDeferred(owed, owed.deadlines.first().After(now))
	s.scheduler.Enqueue(&owed.job, owed.counter.Namespace, owed.ready(), now)
	s.wakeWorkers(now)
}

func (s *Sink) setDeferred(owed *series, deferred bool) {
	if owed.deferred == deferred {
		return
	}
	owed.deferred = deferred
	if deferred {
		s.deferred++
	} else {
		s.deferred--
	}
	s.updateEvictable(owed)
}

// holding is what a flow has pending of the series, nil if that is nothing.
func (owed *series) holding(f flowKey) *holding {
	for _, h := range slices.Backward(owed.holdings) {
		if h.flow.key == f {
			return h
		}
	}
	return nil
}

func (owed *series) drop(h *holding) {
	owed.holdings = slices.DeleteFunc(owed.holdings, func(other *holding) bool { return other == h })
}

// deferredSeries is the number of series that wait for their due time.
func (s *Sink) deferredSeries() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.deferred
}

func (s *Sink) pendingBytes() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held.bytes
}

func (s *Sink) concurrencyLimit() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.scheduler.Limit()
}

func (s *Sink) abandonedCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.requests.abandoned)
}

// overdue returns for how long the most overdue write has been pending.
func (s *Sink) overdue(now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byDeadline.longest(now)
}

// oldest returns the age of the oldest pending occurrence.
func (s *Sink) oldest(now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byRecorded.longest(now)
}

// updateAges updates the ages of a series after what is pending of it or its deadlines have
// changed. The mutex must be held.
func (s *Sink) updateAges(owed *series) {
	s.byDeadline.update(&owed.sinceDeadline, owed.deadlines.first())
	s.byRecorded.update(&owed.sinceRecorded, owed.counter.Pending()[0].Oldest.Recorded)
}

// release lets go of what a series owes no more, and tells whether it owes
// nothing. The mutex must be held.
func (s *Sink) release(owed *series) bool {
	a := owed.counter
	if len(a.Pending()) > 0 {
		owed.deadlines = owed.deadlines.from(a.Pending()[0].Sequence)
		s.updateAges(owed)
		return false
	}
	owed.over = true
	s.byDeadline.remove(&owed.sinceDeadline)
	s.byRecorded.remove(&owed.sinceRecorded)
	s.updateEvictable(owed)
	s.setDeferred(owed, false)
	delete(s.pending, a.Key)
	if a.IsStored() {
		s.idle.Add(a.Key, a.Namespace, a, 1)
	}
	return true
}
