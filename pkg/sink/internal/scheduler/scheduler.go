// Package scheduler decides which job a worker runs next, how many run at once, and when
// the next request may be sent.
//
// A job is idle, waits for a time, is ready, or runs; at most one worker runs it. Ready
// jobs are dequeued round-robin by namespace, and within a namespace round-robin by
// tenant. Of a tenant, urgent jobs are dequeued first. How many run at once follows the answers of the apiserver (limiter). How many of
// them may belong to one namespace follows the health of that namespace
// (namespaceHealth), so a namespace whose requests hang delays no other. Slots of requests that
// hang are lent to other jobs (hanging.go). Jobs whose last request was not answered have a queue
// of their own and may use half of the slots of their namespace. While the apiserver is unreachable, one job is dequeued after each pause
// (connectivity).
//
// A Scheduler starts no goroutine, takes no lock and reads no clock. Except for Wait, it is
// not safe for concurrent use: its owner guards it with a mutex.
package scheduler

import (
	"container/list"
	"context"
	"time"

	"golang.org/x/time/rate"

	"github.com/eventd/eventd/internal/minheap"
)

// Options are the limits of a Scheduler.
type Options struct {
	MinConcurrency, Concurrency int           // bounds of the adaptive concurrency limit
	SlowAnswer                  time.Duration // a mean latency as high as this decreases the limit
	QPS                         float64       // requests per second
	Burst                       int
	// UrgentFirst dequeues the urgent jobs of all namespaces first. Otherwise, they are first
	// among those of their tenant in their namespace.
	UrgentFirst bool
}

// Scheduler schedules jobs.
type Scheduler struct {
	limiter      *limiter
	health       *namespaceHealth
	connectivity connectivity
	rateLimiter  rateLimiter
	waiting      minheap.Heap[*Job]
	namespaces   map[string]*namespace
	// ready are the namespaces with ready jobs of each class, in the order in which they are
	// served: the healthy ones and the degraded ones. Dequeue alternates between the two
	// lists; first is the one that is next.
	ready [classes][2]list.List
	first int
	// With urgentFirst, turns decides from which class the next job is.
	urgentFirst bool
	turns       turns
	lent        int // slots
}

const (
	healthy = iota
	degraded
)

// Job is the state of something to schedule. The zero Job is idle. Value, Tenant and Urgent
// belong to its owner, who does not change the latter two while the job is queued.
type Job struct {
	Value  any
	Tenant string
	Urgent bool

	namespace *namespace // nil while it is idle
	state     jobState
	at        time.Time // when it becomes ready, while it waits
	// wake is when it is looked at among the waiting jobs. It may be earlier than at:
	// most waiting jobs are postponed again and again, which costs nothing then.
	wake          time.Time
	minheap.Place // by wake
	// unanswered: its last request was not answered. It changes while the job runs.
	unanswered bool
	// kind is the queue that it is in while it is ready, at element, or that it was
	// dequeued from.
	kind    queueKind
	element *list.Element
	// degraded: its namespace was degraded when it was dequeued.
	degraded bool
	// hangs: its request hangs. lent: its slot is lent. See ReportLate.
	hangs, lent bool
}

// Before implements minheap.Element.
func (j *Job) Before(other *Job) bool { return j.wake.Before(other.wake) }

// Running reports whether a worker runs the job.
func (j *Job) Running() bool { return j.state == jobRuns }

type jobState uint8

const (
	jobIdle jobState = iota
	jobWaits
	jobReady
	jobRuns
)

// New returns a Scheduler whose concurrency limit begins at its upper bound.
func New(o Options) *Scheduler {
	l := newLimiter(min(o.MinConcurrency, o.Concurrency), o.Concurrency, o.SlowAnswer)
	return &Scheduler{
		limiter: l, health: newNamespaceHealth(l), rateLimiter: rateLimiter{rate.NewLimiter(rate.Limit(o.QPS), o.Burst)},
		namespaces: make(map[string]*namespace), urgentFirst: o.UrgentFirst,
	}
}

// Enqueue makes a job ready at a time, unless it is ready or runs.
func (s *Scheduler) Enqueue(j *Job, namespace string, at, now time.Time) {
	switch j.state {
	case jobIdle:
		s.enter(j, namespace)
		s.schedule(j, at, now)
	case jobWaits:
		j.at = at
		switch {
		case !at.After(now):
			s.waiting.Remove(j)
			s.makeReady(j)
		case at.Before(j.wake):
			j.wake = at
			s.waiting.Fix(j)
		}
	}
}

// Dequeue returns a job to run, nil if there is none with a free slot or if no request may
// be sent yet. The caller returns it with Done.
func (s *Scheduler) Dequeue(now time.Time) *Job {
	s.advance(now)
	j := s.next(now, s.nextRequest(now))
	if j == nil {
		return nil
	}
	n := j.namespace
	s.removeReady(j)
	j.state = jobRuns
	n.running[j.kind]++
	n.first = 1 - j.kind
	j.degraded = s.health.acquire(&n.health)
	for c, position := range n.position {
		if position != nil {
			s.ready[c][n.degraded].MoveToBack(position)
		}
	}
	s.first = 1 - s.first
	s.turns.dequeued(j)
	return j
}

// Done ends the run of a job. It is ready again at a time, or idle if that is zero.
func (s *Scheduler) Done(j *Job, at, now time.Time) {
	n := j.namespace
	n.running[j.kind]--
	s.returned(j)
	s.health.release(j.degraded)
	if at.IsZero() {
		s.leave(j, now)
	} else {
		s.schedule(j, at, now)
	}
}

// Remove makes a job idle that does not run.
func (s *Scheduler) Remove(j *Job, now time.Time) {
	switch j.state {
	case jobWaits:
		s.waiting.Remove(j)
	case jobReady:
		s.removeReady(j)
	default:
		return
	}
	s.leave(j, now)
}

// Next reports whether Dequeue would return a job now. at is the time at which that may
// change without a further call, zero if there is none.
func (s *Scheduler) Next(now time.Time) (ready bool, at time.Time) {
	s.advance(now)
	request := s.nextRequest(now)
	ready = s.next(now, request) != nil
	if j := s.waiting.First(); j != nil {
		at = j.wake
	}
	if s.hasReady() && request.After(now) && (at.IsZero() || request.Before(at)) {
		at = request
	}
	return ready, at
}

// Limit returns the current concurrency limit.
func (s *Scheduler) Limit() int { return s.limiter.size() }

// RequestSent records the first request of a dequeued job. Later requests of the same run
// use Wait.
func (s *Scheduler) RequestSent(now time.Time) {
	s.connectivity.sent(now)
	s.rateLimiter.ReserveN(now, 1) // even if Wait of another job has used the token
}

// Wait waits until the rate limit allows another request. It is safe for concurrent use.
func (s *Scheduler) Wait(ctx context.Context) error { return s.rateLimiter.Wait(ctx) }

// Result is what the answer to a request says about the apiserver and the namespace.
type Result struct {
	Began       time.Time // of the request
	Unsent      bool      // there was no request
	Unreachable bool      // there was no connection
	Answered    bool      // there was an answer
	Overloaded  bool      // it was a 429 or 503
}

// Report records the result of a request of a running job.
func (s *Scheduler) Report(j *Job, r Result, now time.Time) {
	n := j.namespace
	s.returned(j)
	switch {
	case r.Unreachable:
		s.connectivity.failed(r.Began, now)
		return
	case r.Unsent:
		return
	}
	s.connectivity.succeeded(r.Began, now)
	j.unanswered = !r.Answered
	if r.Overloaded {
		s.health.overloaded(n.name, &n.health, r.Began, now)
	} else {
		s.health.answered(n.name, &n.health, r.Answered, r.Began, now)
	}
	s.updateHealth(n)
}

// updateHealth moves a namespace to the other lists if its health has changed.
func (s *Scheduler) updateHealth(n *namespace) {
	before := n.degraded
	if n.degraded = s.listOf(n); n.degraded == before {
		return
	}
	for c, position := range n.position {
		if position != nil {
			s.ready[c][before].Remove(position)
			n.position[c] = s.ready[c][n.degraded].PushBack(n)
		}
	}
}

// OverdueBefore returns the time before which a deadline must have passed to have been
// overdue for long. Time during which the apiserver was unreachable does not count.
func (s *Scheduler) OverdueBefore(now time.Time, long time.Duration) time.Time {
	return s.connectivity.overdueBefore(now, long)
}

// next returns the job to dequeue, nil if there is none; request is when the next request
// may be sent. The namespaces that are passed over have running jobs, so there are never
// more of them than jobs that run.
func (s *Scheduler) next(now, request time.Time) *Job {
	if !s.hasReady() || request.After(now) {
		return nil
	}
	if s.urgentFirst && s.turns.isUrgent() {
		if j := s.nextOf(urgentJob); j != nil {
			return j
		}
	}
	return s.nextOf(everyJob)
}

// nextOf returns the job of a class to dequeue.
func (s *Scheduler) nextOf(c class) *Job {
	ready := &s.ready[c]
	for i := range ready {
		l := &ready[(s.first+i)%len(ready)]
		if l == &ready[degraded] && !s.health.hasSlotForDegraded() {
			continue
		}
		for e := l.Front(); e != nil; e = e.Next() {
			if j := s.nextIn(e.Value.(*namespace), c); j != nil {
				return j
			}
		}
	}
	return nil
}

// nextIn returns the job of a namespace to dequeue, nil if it has no free slot.
func (s *Scheduler) nextIn(n *namespace, c class) *Job {
	share := s.health.share(&n.health, n.runs()-n.lent)
	if !n.hasSlot(share) {
		return nil
	}
	for _, kind := range [queueKinds]queueKind{n.first, 1 - n.first} {
		if kind == unanswered && n.running[kind] >= max(1, share/2) {
			continue
		}
		if j := n.queues[kind].peek(c); j != nil {
			return j
		}
	}
	return nil
}

// hasReady reports whether a job is ready and a slot is free.
func (s *Scheduler) hasReady() bool {
	ready := &s.ready[everyJob]
	return ready[healthy].Len()+ready[degraded].Len() > 0 && !s.limiter.isFull()
}

// listOf returns which of the lists a namespace belongs to.
func (s *Scheduler) listOf(n *namespace) int {
	if s.health.isDegraded(&n.health) {
		return degraded
	}
	return healthy
}

// nextRequest returns when the next request may be sent.
func (s *Scheduler) nextRequest(now time.Time) time.Time {
	at := now.Add(s.rateLimiter.delay(now))
	if resume := s.connectivity.resume; s.connectivity.pause > 0 && resume.After(at) {
		at = resume
	}
	return at
}

func (s *Scheduler) schedule(j *Job, at, now time.Time) {
	if !at.After(now) {
		s.makeReady(j)
		return
	}
	j.state, j.at, j.wake = jobWaits, at, at
	s.waiting.Fix(j)
}

// advance makes ready what has waited long enough.
func (s *Scheduler) advance(now time.Time) {
	for j := s.waiting.First(); j != nil && !j.wake.After(now); j = s.waiting.First() {
		if j.at.After(now) {
			j.wake = j.at
			s.waiting.Fix(j)
			continue
		}
		s.waiting.Remove(j)
		s.makeReady(j)
	}
}

// makeReady lists the namespace with its first ready job of a class, and removeReady removes
// it with its last.
func (s *Scheduler) makeReady(j *Job) {
	n := j.namespace
	j.state, j.kind = jobReady, kindOf(j)
	n.queues[j.kind].add(j)
	for c := range classes {
		if n.position[c] == nil && n.has(c) {
			n.position[c] = s.ready[c][n.degraded].PushBack(n)
		}
	}
}

func (s *Scheduler) removeReady(j *Job) {
	n := j.namespace
	n.queues[j.kind].remove(j)
	for c := range classes {
		if n.position[c] != nil && !n.has(c) {
			s.ready[c][n.degraded].Remove(n.position[c])
			n.position[c] = nil
		}
	}
}

func (s *Scheduler) enter(j *Job, name string) {
	n := s.namespaces[name]
	if n == nil {
		n = &namespace{name: name, health: s.health.load(name)}
		n.degraded = s.listOf(n)
		s.namespaces[name] = n
	}
	n.jobs++
	j.namespace = n
}

func (s *Scheduler) leave(j *Job, now time.Time) {
	n := j.namespace
	j.state, j.namespace = jobIdle, nil
	if n.jobs--; n.jobs == 0 {
		s.health.store(n.name, n.health, now)
		delete(s.namespaces, n.name)
	}
}
