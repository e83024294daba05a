package scheduler

import "time"

// A request hangs, for example behind an admission webhook of its namespace, if it has had no
// answer for SlowAnswer, and another namespace has had one in good time since it began. That says
// nothing about the capacity of the apiserver, so the slot of its job is lent to other jobs until
// the request returns. A slot is lent only while less than half of the present limit is lent; a
// later decrease of the limit takes none back.
//
// Further requests of the namespace are likely to hang too. While it has had no answer in good
// time since the newest request that hangs began, it sends one more at a time, within its share.
// Slots of degraded namespaces are not lent: these would use up all that may be lent.

// ReportLate records that a request of a running job, begun at a time, is without an answer for
// SlowAnswer. It is called again while that lasts: whether the request hangs may be known only
// later.
func (s *Scheduler) ReportLate(j *Job, began time.Time) {
	n := j.namespace
	if j.degraded || !s.health.othersPrompt(n.name, began) {
		return
	}
	if !j.hangs {
		j.hangs = true
		n.hanging++
	}
	if n.hanging == 1 || began.After(n.newestHung) { // an older one may be found to hang later
		n.newestHung = began
	}
	if !j.lent && s.lent < s.limiter.size()/2 {
		j.lent = true
		n.lent++
		s.lent++
		s.limiter.release()
	}
}

// Lent returns how many slots are lent: so many more jobs than Limit may run.
func (s *Scheduler) Lent() int { return s.lent }

// returned records that the request of a running job has returned. A lent slot is its own again,
// also if no other is free.
func (s *Scheduler) returned(j *Job) {
	n := j.namespace
	if j.hangs {
		j.hangs = false
		n.hanging--
	}
	if j.lent {
		j.lent = false
		n.lent--
		s.lent--
		s.limiter.acquire()
	}
}

// hasSlot reports whether one more job of a namespace may run.
func (n *namespace) hasSlot(share int) bool {
	runs := n.runs()
	if n.hanging > 0 && runs > n.hanging && n.health.prompt.Before(n.newestHung) {
		return false // the one more runs already
	}
	return runs < share
}
