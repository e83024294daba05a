package sink

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/counter"
	"github.com/eventd/eventd/pkg/sink/internal/scheduler"
)

// pendingSeries is a series with pending occurrences. The sink's mutex guards it; see Sink.
type pendingSeries struct {
	counter   *counter.Counter
	deadlines deadlines
	// user is that of the newest occurrence. othersDeadline is the upper bound of the last
	// deadline because of other users, zero if there is none.
	user           string
	othersDeadline time.Time
	// failures in a row, and the time of the next attempt, after them or after a refusal of
	// the namespace.
	failures int
	retryAt  time.Time
	// refused: it waits because of the refusal of its namespace.
	refused bool
	job     scheduler.Job
	// deferred: its deadline lies in the future.
	deferred bool
	// unknown: there was no state of it, and no request was planned. See firstRequests.
	unknown bool
	// over: nothing is pending any more. Later occurrences get a new pendingSeries.
	over bool
	// allocations has one element for each flow with pending occurrences; usually one.
	allocations []*allocation
	// adopted is not nil if it is of another contributor.
	adopted *adopted
	// sinceDeadline and sinceRecorded are its elements of Sink.byDeadline and byRecorded.
	sinceDeadline, sinceRecorded age
}

// deadlineGrains is the number of parts of Options.RetryFor to which deadlines are rounded.
const deadlineGrains = 16

func newPendingSeries(a *counter.Counter) *pendingSeries {
	p := &pendingSeries{counter: a, deadlines: make(deadlines, 0, 2), unknown: true}
	p.job.Value, p.job.Urgent = p, a.EventType == corev1.EventTypeWarning
	return p
}

// ready returns when the series may be written next.
func (p *pendingSeries) ready() time.Time {
	if at := p.deadlines.first(); at.After(p.retryAt) {
		return at
	}
	return p.retryAt
}

// recordedUpTo returns the sequence of the sink at the time of the newest pending occurrence.
func (p *pendingSeries) recordedUpTo() uint64 {
	if p.adopted != nil {
		return p.adopted.since
	}
	return p.counter.Last()
}

// deadlineFor returns the deadline of an occurrence of a user that is to be written at a
// time. A user may postpone its own write, but only bring forward that of another: each has
// a budget of its own, and one that is used up must not delay other users of the series.
func (p *pendingSeries) deadlineFor(user string, now, at time.Time) time.Time {
	switch last := p.deadlines.last(); {
	case !last.After(now):
		p.othersDeadline = time.Time{}
	case user != p.user:
		p.othersDeadline = last
	}
	p.user = user
	if !p.othersDeadline.IsZero() && p.othersDeadline.Before(at) {
		return p.othersDeadline
	}
	return at
}

// reschedule has a worker write the series when it is ready, unless one does. The mutex must
// be held.
func (s *Sink) reschedule(p *pendingSeries, now time.Time) {
	s.updateAges(p)
	s.setDeferred(p, p.deadlines.first().After(now))
	s.scheduler.Enqueue(&p.job, p.counter.Namespace, p.ready(), now)
	s.wakeWorkers(now)
}

func (s *Sink) setDeferred(p *pendingSeries, deferred bool) {
	if p.deferred == deferred {
		return
	}
	p.deferred = deferred
	if deferred {
		s.deferred++
	} else {
		s.deferred--
	}
	s.updateEvictable(p)
}

// allocation returns that of a flow, nil if there is none.
func (p *pendingSeries) allocation(f flowKey) *allocation {
	for _, h := range slices.Backward(p.allocations) {
		if h.flow.key == f {
			return h
		}
	}
	return nil
}

func (p *pendingSeries) drop(h *allocation) {
	p.allocations = slices.DeleteFunc(p.allocations, func(other *allocation) bool { return other == h })
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

// updateAges updates the ages of a series after what is pending of it or its deadlines have
// changed. The mutex must be held.
func (s *Sink) updateAges(p *pendingSeries) {
	s.byDeadline.update(&p.sinceDeadline, p.deadlines.first())
	s.byRecorded.update(&p.sinceRecorded, p.counter.Pending()[0].Oldest.Recorded)
}

// release drops the deadlines of what has settled, and the series if nothing is pending any
// more; it reports whether that is so. The mutex must be held.
func (s *Sink) release(p *pendingSeries) bool {
	a := p.counter
	if p.adopted != nil {
		s.markAdopted(p)
	}
	if len(a.Pending()) > 0 {
		p.deadlines = p.deadlines.dropBefore(a.Pending()[0].Sequence)
		s.updateAges(p)
		return false
	}
	p.over = true
	s.byDeadline.Remove(&p.sinceDeadline)
	s.byRecorded.Remove(&p.sinceRecorded)
	s.updateEvictable(p)
	s.setDeferred(p, false)
	delete(s.pending, a.Key)
	switch {
	case p.adopted != nil:
		s.endAdopted(p)
	case a.IsStored():
		s.remember(a)
	}
	return true
}

// backlog is the number of pending series for which there may be memory while none is pending.
const backlog = 512

// freeBacklog frees the memory of a backlog once nothing is pending: maps and slices keep their largest
// size, here about 200 bytes for each series. The mutex must be held.
func (s *Sink) freeBacklog() {
	if len(s.pending) > 0 || len(s.fair.flows) > 0 || s.byDeadline.Cap() <= backlog {
		return
	}
	s.pending = make(map[occurrence.Key]*pendingSeries)
	*s.fair = *newFairShare(&s.options) // in place: a worker may still hold what has settled, which leads to it
	s.byDeadline, s.byRecorded = ages{}, ages{}
}
