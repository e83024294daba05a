package scheduler

import "container/list"

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
	queues   [queueKinds]tenantQueue
	running  [queueKinds]int
	first    queueKind
	list     *list.List    // of Scheduler.ready that it is in, nil if it has no ready job
	position *list.Element // in the list
	health   health
}

func (n *namespace) inUse() int { return n.running[answered] + n.running[unanswered] }

func (n *namespace) hasReady() bool {
	return n.queues[answered].tenants.Len()+n.queues[unanswered].tenants.Len() > 0
}

// tenantQueue is a queue of jobs, round-robin by tenant.
type tenantQueue struct {
	tenants  list.List                // of *list.List of *Job, none of which is empty
	position map[string]*list.Element // in tenants
}

func (q *tenantQueue) add(j *Job) {
	position := q.position[j.Tenant]
	if position == nil {
		if q.position == nil {
			q.position = make(map[string]*list.Element)
		}
		position = q.tenants.PushBack(list.New())
		q.position[j.Tenant] = position
	}
	j.element = position.Value.(*list.List).PushBack(j)
}

// peek returns the next job, nil if there is none.
func (q *tenantQueue) peek() *Job {
	position := q.tenants.Front()
	if position == nil {
		return nil
	}
	return position.Value.(*list.List).Front().Value.(*Job)
}

// remove removes a job. Another tenant is next then.
func (q *tenantQueue) remove(j *Job) {
	position := q.position[j.Tenant]
	jobs := position.Value.(*list.List)
	if jobs.Remove(j.element); jobs.Len() > 0 {
		q.tenants.MoveToBack(position)
		return
	}
	q.tenants.Remove(position)
	delete(q.position, j.Tenant)
}
