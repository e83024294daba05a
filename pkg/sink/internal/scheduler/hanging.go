package scheduler

import "time"

// A request that has had no answer for a while hangs, for example behind an admission webhook of
// its namespace, if other namespaces are answered in good time meanwhile. It takes nothing of what
// the limiter measures, so its slot is lent to other jobs until it returns. That adds at most half
// of the limit to the requests in flight. As long as its own namespace has no answer in good time
// since it began, one further request at a time is sent in that: it is likely to hang as well. The
// slots of degraded namespaces, which have few, are not lent: they would use up what may be.

// Waits records that a request of a running job, begun at a time, has had no answer for a while.
// The caller calls it again later: it may not be known yet whether the request hangs.
func (s *Scheduler) Waits(j *Job, began time.Time) {
	n := j.namespace
	if j.degraded || !s.health.othersPrompt(n.name, began) {
		return
	}
	if !j.hangs {
		j.hangs = true
		n.hanging++
	}
	if n.hanging == 1 || began.After(n.hangs) { // an older one may be found to hang later
		n.hangs = began
	}
	if !j.lent && s.lent < s.limiter.size()/2 {
		j.lent = true
		n.lent++
		s.lent++
		s.health.release(j.degraded)
	}
}

// Lent returns how many slots are lent: so many more jobs than Limit may run.
func (s *Scheduler) Lent() int { return s.lent }

// release takes the slot of a job back.
func (s *Scheduler) release(j *Job) {
	n := j.namespace
	if j.hangs {
		j.hangs = false
		n.hanging--
	}
	if !j.lent {
		s.health.release(j.degraded)
		return
	}
	j.lent = false
	n.lent--
	s.lent--
}

// hasSlot reports whether one more job of a namespace may run.
func (n *namespace) hasSlot(share int) bool {
	inUse := n.inUse()
	if n.hanging > 0 && n.health.prompt.Before(n.hangs) {
		return inUse < share && inUse == n.hanging
	}
	return inUse < share
}
