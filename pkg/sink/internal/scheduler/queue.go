package scheduler

import (
	"container/list"
	"time"
)

// queueKind is one of the queues of a namespace.
type queueKind uint8

const (
	answered queueKind = iota
	unanswered
	queueKinds
)

func kindOf(j *Job) queueKind {
	if j.unanswered {
		return unanswered
	}
	return answered
}

// namespace exists while it has jobs that are not idle.
type namespace struct {
	name string
	jobs int
	// queues have the ready jobs, and running is how many from each queue run. Dequeue
	// alternates between the queues; first is the one that is next.
	queues  [queueKinds]tenantQueue
	running [queueKinds]int
	first   queueKind
	// position is its element in the lists of Scheduler.ready for each class, nil if it has no
	// ready job of that, and degraded the list of the two.
	position [classes]*list.Element
	degraded int
	// hanging is how many of its jobs have a request that hangs, and lent how many of their
	// slots are lent. newestHung is when the newest request that was found to hang began; it
	// may have returned since.
	hanging, lent int
	newestHung    time.Time
	health        health
}

// runs returns how many of its jobs run, those whose slots are lent too.
func (n *namespace) runs() int { return n.running[answered] + n.running[unanswered] }

// has reports whether a job of a class is ready.
func (n *namespace) has(c class) bool {
	return n.queues[answered].has(c) || n.queues[unanswered].has(c)
}

// class is a set of jobs.
type class uint8

const (
	everyJob class = iota
	urgentJob
	classes
)

// urgentInARow is how many urgent jobs are dequeued before a ready one that is not: those wait
// longer, but not forever.
const urgentInARow = 3

// turns decides whether the next job is an urgent one.
type turns struct{ urgent int } // in a row

func (t *turns) isUrgent() bool { return t.urgent < urgentInARow }

// dequeued records a job that was dequeued.
func (t *turns) dequeued(j *Job) {
	if t.urgent++; !j.Urgent {
		t.urgent = 0
	}
}

// tenantQueue is a queue of jobs, round-robin by tenant.
type tenantQueue struct {
	tenants  list.List                // of *tenantJobs, none of which is empty
	position map[string]*list.Element // in tenants
	urgent   int
}

// tenantJobs are the jobs of a tenant, in order of arrival. Urgent ones are dequeued first.
type tenantJobs struct {
	urgent, others list.List // of *Job
	turns          turns
}

func (t *tenantJobs) listOf(j *Job) *list.List {
	if j.Urgent {
		return &t.urgent
	}
	return &t.others
}

func (t *tenantJobs) next() *Job {
	if t.others.Len() == 0 || t.urgent.Len() > 0 && t.turns.isUrgent() {
		return t.urgent.Front().Value.(*Job)
	}
	return t.others.Front().Value.(*Job)
}

func (q *tenantQueue) has(c class) bool {
	if c == urgentJob {
		return q.urgent > 0
	}
	return q.tenants.Len() > 0
}

func (q *tenantQueue) add(j *Job) {
	position := q.position[j.Tenant]
	if position == nil {
		if q.position == nil {
			q.position = make(map[string]*list.Element)
		}
		position = q.tenants.PushBack(&tenantJobs{})
		q.position[j.Tenant] = position
	}
	j.element = position.Value.(*tenantJobs).listOf(j).PushBack(j)
	if j.Urgent {
		q.urgent++
	}
}

// peek returns the next job of a class, nil if there is none.
func (q *tenantQueue) peek(c class) *Job {
	if !q.has(c) {
		return nil
	}
	position := q.tenants.Front()
	if c == everyJob {
		return position.Value.(*tenantJobs).next()
	}
	for position.Value.(*tenantJobs).urgent.Len() == 0 {
		position = position.Next()
	}
	return position.Value.(*tenantJobs).urgent.Front().Value.(*Job)
}

// remove removes a job. Another tenant is next then.
func (q *tenantQueue) remove(j *Job) {
	position := q.position[j.Tenant]
	t := position.Value.(*tenantJobs)
	t.listOf(j).Remove(j.element)
	t.turns.dequeued(j)
	if j.Urgent {
		q.urgent--
	}
	if t.urgent.Len()+t.others.Len() > 0 {
		q.tenants.MoveToBack(position)
		return
	}
	q.tenants.Remove(position)
	delete(q.position, j.Tenant)
}
