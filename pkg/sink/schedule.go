package sink

import (
	"container/heap"
	"container/list"
	"time"
)

// schedule decides which series is worked on next. A series rests, waits for its
// deadline, is ready, or runs; it is in one worker at a time. Ready series are taken
// round-robin by namespace, as far as the limiter and the namespace's share allow, and
// within a namespace round-robin by tenant. Series whose last request was not answered
// stand in a line of their own and may use half of the namespace's slots, so that none
// waits behind series that hang repeatedly.
//
// It is not safe for concurrent use, except for the rate limiter; the sink's mutex guards
// it. It starts no goroutines and reads no clock.
type schedule struct {
	limiter      *limiter
	health       *namespaceHealth
	connectivity connectivity
	rateLimiter  rateLimiter
	waiting      waiting
	namespaces   map[string]*namespace
	// turns are the namespaces with something ready, in the order in which they are
	// served: the healthy ones, and the degraded ones. The lists take turns too, and
	// nextTurn is whose it is.
	turns    [2]list.List
	nextTurn int
}

// job is the place of a series in the schedule. The zero job rests.
type job struct {
	series    *series
	namespace *namespace // nil while it rests
	state     jobState
	at        time.Time // when it is to be ready, while it waits
	// wake and index are its place among those that wait. It may be woken too
	// early, and then waits on: most of what waits is put off again and again.
	wake  time.Time
	index int
	// unanswered: its last request was not answered. It changes while it runs.
	unanswered bool
	// line is the one of its namespace that it is in while it is ready, at element,
	// or that it was taken from.
	line    line
	element *list.Element
	tenant  string // of who began what is pending; it does not change
	// degraded: its namespace was degraded when it was taken.
	degraded bool
}

// line is one of those that a namespace has.
type line uint8

const (
	answered line = iota
	unanswered
	lines
)

// lineOf is the line that a job belongs in.
func lineOf(j *job) line {
	if j.unanswered {
		return unanswered
	}
	return answered
}

type jobState uint8

const (
	jobRests jobState = iota
	jobWaits
	jobReady
	jobRuns
)

// namespace is there while it has jobs that do not rest.
type namespace struct {
	name string
	jobs int
	// ready and running are what is ready in each of its lines, and how many of it
	// are in work. The lines take turns, and nextLine is whose it is.
	ready    [lines]readyLine
	running  [lines]int
	nextLine line
	turns    *list.List    // that it is in, nil if nothing is ready
	turn     *list.Element // its place there
	health   health
}

func (n *namespace) places() int { return n.running[answered] + n.running[unanswered] }

func (n *namespace) hasReady() bool {
	return n.ready[answered].tenants.Len()+n.ready[unanswered].tenants.Len() > 0
}

// readyLine are jobs that are ready, of one tenant after the other.
type readyLine struct {
	tenants list.List                // of *list.List of *job, none of which is empty
	turns   map[string]*list.Element // of tenants
}

func (l *readyLine) add(j *job) {
	turn := l.turns[j.tenant]
	if turn == nil {
		if l.turns == nil {
			l.turns = make(map[string]*list.Element)
		}
		turn = l.tenants.PushBack(list.New())
		l.turns[j.tenant] = turn
	}
	j.element = turn.Value.(*list.List).PushBack(j)
}

// first is the next job, nil if there is none.
func (l *readyLine) first() *job {
	turn := l.tenants.Front()
	if turn == nil {
		return nil
	}
	return turn.Value.(*list.List).Front().Value.(*job)
}

// remove takes out a job, after which it is the next tenant's turn.
func (l *readyLine) remove(j *job) {
	turn := l.turns[j.tenant]
	jobs := turn.Value.(*list.List)
	if jobs.Remove(j.element); jobs.Len() > 0 {
		l.tenants.MoveToBack(turn)
		return
	}
	l.tenants.Remove(turn)
	delete(l.turns, j.tenant)
}

func newSchedule(l *limiter, p rateLimiter) *schedule {
	return &schedule{limiter: l, health: newNamespaceHealth(l), rateLimiter: p, namespaces: make(map[string]*namespace)}
}

// put has a job that is not in work ready at a time. What is ready stays so.
func (s *schedule) put(j *job, namespace string, at, now time.Time) {
	switch j.state {
	case jobRests:
		s.enter(j, namespace)
		s.place(j, at, now)
	case jobWaits:
		j.at = at
		switch {
		case !at.After(now):
			heap.Remove(&s.waiting, j.index)
			s.makeReady(j)
		case at.Before(j.wake):
			j.wake = at
			heap.Fix(&s.waiting, j.index)
		}
	}
}

// take returns a job to work on, or nil if none is ready that has a free slot.
func (s *schedule) take(now time.Time) *job {
	s.advance(now)
	j := s.turn(now, s.mayAsk(now))
	if j == nil {
		return nil
	}
	n := j.namespace
	s.takeReady(j)
	j.state = jobRuns
	n.running[j.line]++
	n.nextLine = 1 - j.line
	j.degraded = s.health.acquire(&n.health)
	if n.turns != nil {
		n.turns.MoveToBack(n.turn)
	}
	s.nextTurn = 1 - s.nextTurn
	return j
}

// turn is the next one to take, nil if there is none; there may be a request at the
// time ask. The namespaces that are passed over have places of their own, so they
// are never more than the limiter has slots.
func (s *schedule) turn(now, ask time.Time) *job {
	if !s.isWaitedFor() || ask.After(now) {
		return nil
	}
	for i := range s.turns {
		turns := &s.turns[(s.nextTurn+i)%len(s.turns)]
		if turns == &s.turns[slowOnes] && !s.health.hasSlotForDegraded() {
			continue
		}
		for e := turns.Front(); e != nil; e = e.Next() {
			if j := s.turnIn(e.Value.(*namespace)); j != nil {
				return j
			}
		}
	}
	return nil
}

// turnIn is the next one to take from a namespace, nil if it has no free slot.
func (s *schedule) turnIn(n *namespace) *job {
	share := s.health.share(&n.health, n.places())
	if n.places() >= share {
		return nil
	}
	for _, l := range [lines]line{n.nextLine, 1 - n.nextLine} {
		if l == unanswered && n.running[l] >= max(1, share/2) {
			continue
		}
		if first := n.ready[l].first(); first != nil {
			return first
		}
	}
	return nil
}

const (
	goodOnes = iota
	slowOnes
)

// isWaitedFor tells whether something is ready and there is a free slot.
func (s *schedule) isWaitedFor() bool {
	return s.turns[goodOnes].Len()+s.turns[slowOnes].Len() > 0 && !s.limiter.isFull()
}

// turnsOf is the list that a namespace belongs to.
func (s *schedule) turnsOf(n *namespace) *list.List {
	if s.health.isDegraded(&n.health) {
		return &s.turns[slowOnes]
	}
	return &s.turns[goodOnes]
}

// judged is called when the health of a namespace may have changed.
func (s *schedule) judged(n *namespace) {
	if turns := s.turnsOf(n); n.turns != nil && n.turns != turns {
		n.turns.Remove(n.turn)
		n.turns, n.turn = turns, turns.PushBack(n)
	}
}

// done takes back a job that was worked on. It is ready again at a time, or rests
// if that is zero.
func (s *schedule) done(j *job, at, now time.Time) {
	n := j.namespace
	n.running[j.line]--
	s.health.release(j.degraded)
	if at.IsZero() {
		s.leave(j, now)
	} else {
		s.place(j, at, now)
	}
}

// drop has a job that is not in work rest.
func (s *schedule) drop(j *job, now time.Time) {
	switch j.state {
	case jobWaits:
		heap.Remove(&s.waiting, j.index)
	case jobReady:
		s.takeReady(j)
	default:
		return
	}
	s.leave(j, now)
}

// next is when there may be something to take that is not there now; zero if only
// a call can change that.
func (s *schedule) next(now, ask time.Time) (at time.Time) {
	if len(s.waiting) > 0 {
		at = s.waiting[0].wake
	}
	if s.isWaitedFor() && ask.After(now) && (at.IsZero() || ask.Before(at)) {
		at = ask
	}
	return at
}

// asks takes note of the first request for what was taken. Others that follow wait
// for the rate limiter by themselves.
func (s *schedule) asks(now time.Time) {
	s.connectivity.sent(now)
	s.rateLimiter.ReserveN(now, 1) // whether or not another request has been quicker
}

// mayAsk is when there may be the next request.
func (s *schedule) mayAsk(now time.Time) time.Time {
	at := now.Add(s.rateLimiter.delay(now))
	if resume := s.connectivity.resume; s.connectivity.pause > 0 && resume.After(at) {
		at = resume
	}
	return at
}

func (s *schedule) place(j *job, at, now time.Time) {
	if !at.After(now) {
		s.makeReady(j)
		return
	}
	j.state, j.at, j.wake = jobWaits, at, at
	heap.Push(&s.waiting, j)
}

// advance makes ready what has waited long enough.
func (s *schedule) advance(now time.Time) {
	for len(s.waiting) > 0 && !s.waiting[0].wake.After(now) {
		j := s.waiting[0]
		if j.at.After(now) {
			j.wake = j.at
			heap.Fix(&s.waiting, 0)
			continue
		}
		heap.Pop(&s.waiting)
		s.makeReady(j)
	}
}

// makeReady gives a namespace its turn with the first that is ready in it, and
// takeReady takes it away with the last.
func (s *schedule) makeReady(j *job) {
	n := j.namespace
	j.state, j.line = jobReady, lineOf(j)
	if n.ready[j.line].add(j); n.turns == nil {
		n.turns = s.turnsOf(n)
		n.turn = n.turns.PushBack(n)
	}
}

func (s *schedule) takeReady(j *job) {
	n := j.namespace
	if n.ready[j.line].remove(j); !n.hasReady() {
		n.turns.Remove(n.turn)
		n.turns, n.turn = nil, nil
	}
}

func (s *schedule) enter(j *job, name string) {
	n := s.namespaces[name]
	if n == nil {
		n = &namespace{name: name, health: s.health.of(name)}
		s.namespaces[name] = n
	}
	n.jobs++
	j.namespace = n
}

func (s *schedule) leave(j *job, now time.Time) {
	n := j.namespace
	j.state, j.namespace = jobRests, nil
	if n.jobs--; n.jobs == 0 {
		s.health.remember(n.name, n.health, now)
		delete(s.namespaces, n.name)
	}
}

// waiting is a heap of jobs by when to look at them.
type waiting []*job

var _ heap.Interface = &waiting{}

func (w waiting) Len() int           { return len(w) }
func (w waiting) Less(i, k int) bool { return w[i].wake.Before(w[k].wake) }
func (w waiting) Swap(i, k int) {
	w[i], w[k] = w[k], w[i]
	w[i].index, w[k].index = i, k
}

// Push implements heap.Interface.
func (w *waiting) Push(x any) {
	j := x.(*job)
	j.index = len(*w)
	*w = append(*w, j)
}

// Pop implements heap.Interface.
func (w *waiting) Pop() any {
	last := len(*w) - 1
	j := (*w)[last]
	(*w)[last] = nil
	*w = (*w)[:last]
	return j
}
