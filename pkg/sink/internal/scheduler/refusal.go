package scheduler

import (
	"time"

	"github.com/eventd/eventd/pkg/occurrence"
)

// Refusal is the cached answer of the apiserver that a namespace is missing or
// terminating. The zero value is no refusal.
type Refusal struct {
	Reason occurrence.Reason
	Err    error
	UpTo   uint64    // the last sequence when the request was sent
	Until  time.Time // when the next request may be sent
}

// IsSet reports whether there is a refusal.
func (r *Refusal) IsSet() bool { return r.Reason != occurrence.NoReason }

// Refusal returns the refusal of the namespace of a job that is not idle.
func (s *Scheduler) Refusal(j *Job) Refusal { return j.namespace.health.refusal }

// Refuse caches a refusal for the namespace of a job, unless the answer to a later request
// has shown that Events can be created there.
func (s *Scheduler) Refuse(j *Job, r Refusal) {
	if h := &j.namespace.health; r.UpTo >= h.created {
		h.refusal = r
	}
}

// Postpone sets when the next request may be sent to the namespace of a job, if it has a
// refusal.
func (s *Scheduler) Postpone(j *Job, until time.Time) {
	if r := &j.namespace.health.refusal; r.IsSet() {
		r.Until = until
	}
}

// Created removes the refusal of the namespace of a job: Events can be created there, as of
// a sequence.
func (s *Scheduler) Created(j *Job, sequence uint64) {
	h := &j.namespace.health
	h.refusal = Refusal{}
	h.created = max(h.created, sequence)
}

// RefusalOf returns the refusal of a namespace.
func (s *Scheduler) RefusalOf(namespace string) Refusal {
	if n := s.namespaces[namespace]; n != nil {
		return n.health.refusal
	}
	return s.health.load(namespace).refusal
}
