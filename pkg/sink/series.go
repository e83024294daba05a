package sink

import "time"

// series is one that owes something. The sink's mutex guards it.
type series struct {
	account *account
	dues    dues
	// failures in a row, and when the next attempt may be made after them.
	failures int
	retryAt  time.Time
	// wake is when the queue hands the series to a worker, at the latest. It has
	// passed while the series is in work, and is zero while that is not arranged.
	wake time.Time
	// deferred: it was not due when its wake-up was arranged.
	deferred bool
}

const (
	// wakeSlack is how late a write may be. It spares another wake-up for each
	// occurrence that wants to be written when the one before wanted to be.
	wakeSlack = 2 * time.Millisecond
	// dueGrains is into how many parts the time is divided for which the
	// apiserver may not take an occurrence.
	dueGrains = 16
)

func newSeries(a *account) *series { return &series{account: a, dues: make(dues, 0, 2)} }

// ready is when the series may be worked on next.
func (owed *series) ready() time.Time {
	if at := owed.dues.first(); at.After(owed.retryAt) {
		return at
	}
	return owed.retryAt
}

// arrange sees to it that a worker gets the series when it is ready. A worker
// that gets it too early arranges the rest, since what waits in the queue cannot
// be put off. The mutex must be held.
func (s *Sink) arrange(owed *series, now time.Time) {
	s.setDeferred(owed, owed.dues.first().After(now))
	wait := max(0, owed.ready().Sub(now))
	at := now.Add(wait)
	if !owed.wake.IsZero() && owed.wake.Sub(at) <= wakeSlack {
		return
	}
	owed.wake = at
	s.queue.AddAfter(owed.account.key, wait) // adds it now if there is no wait
}

// woken takes note that a worker has the series. It tells whether there is
// something to do; if not, the next wake-up is arranged. The mutex must be held.
func (s *Sink) woken(owed *series, now time.Time) bool {
	if owed.ready().After(now) {
		owed.wake = time.Time{}
		s.arrange(owed, now)
		return false
	}
	owed.wake = now
	s.setDeferred(owed, false)
	return true
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
}

// deferredSeries is the number of series that wait for their due time.
func (s *Sink) deferredSeries() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.deferred
}

// release lets go of what a series owes no more, and tells whether it owes
// nothing. The mutex must be held.
func (s *Sink) release(owed *series) bool {
	a := owed.account
	if len(a.pending) > 0 {
		owed.dues = owed.dues.from(a.pending[0].sequence)
		return false
	}
	s.setDeferred(owed, false)
	delete(s.pending, a.key)
	if a.observed != nil {
		s.idle.Add(a.key, a)
	}
	return true
}
