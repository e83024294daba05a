package sink

import (
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// room is how many series may be worked on at once. It follows what the apiserver
// shows that it can take: an answer that it has too much to do, none at all, or
// answers that are slow on average make the room smaller by a part, each answer in
// good time a little larger. Single answers that are slow say nothing: there are
// some wherever a machine is shared. Where it was too much is remembered: up to
// there the room grows back quickly, and then hardly, until it turns out that more
// can be taken now. So nearly all of what the apiserver takes is used, and few
// requests find out that it is no more.
//
// A namespace may have a part of the room that others leave. So however many of
// its requests hang, because an admission webhook in it does not answer, say, some
// of the room is left, of which the next namespace may have a part, and so on. One
// that was slow may have fewer places, down to one, and soon more when it is quick
// again; all of those may have half of the room.
//
// Whoever owns it guards it.
type room struct {
	floor, ceiling float64
	slow           time.Duration // an answer that takes as long as this is slow

	limit     float64
	decreased time.Time
	// latency is what answers have taken on average since it decreased.
	latency latency
	// tooMuch is the limit at which the apiserver had too much to do, 0 if that is
	// not known, or not true any more; grown is when there was an answer since.
	tooMuch float64
	grown   time.Time
	// taken are the places that are taken, and suspect those of them by namespaces
	// that were slow.
	taken, suspect int
	// inTime are the last answers in good time, of one namespace and of another.
	inTime [2]sign
	// known are the namespaces that were slow or have a limit of their own, and refused
	// those of which only a refusal is known, while they have nothing to do. Names of
	// the latter anybody can make up who may create Events everywhere; they push out
	// none of the former.
	known, refused *simplelru.LRU[string, standing]
}

// latency is what answers take on average. It begins at nothing: how many slow ones
// it takes until it is slow depends on how slow they are.
type latency time.Duration

// add takes in one that took so long, with a weight, and returns what it is now.
func (l *latency) add(took time.Duration, weight float64) time.Duration {
	*l += latency(float64(took-time.Duration(*l)) * weight)
	return time.Duration(*l)
}

// sign is an answer in good time.
type sign struct {
	namespace string
	at        time.Time
}

// standing is what is known of a namespace.
type standing struct {
	// most is how many places it may have, if there is room.
	most      float64
	decreased time.Time
	// latency is what its answers have taken on average since that decreased.
	latency latency
	// throttled is about which part of its requests was refused as too many.
	throttled float64
	// refusal is why no Event can be created in it, and there the last sequence at the
	// time of the latest request that found that one can.
	refusal refusal
	there   uint64
}

const (
	// sharePart is the part that a namespace may have of the room that others leave.
	sharePart = 3. / 4
	// decrease is of what there is.
	decrease = 0.8
	// growBack is the part of a place by which each answer increases the room below
	// what was too much, and growOn above.
	growBack, growOn = 1. / 8, 1. / 4
	// Close to there it takes so many answers to increase it by a place, of which
	// one may then be a refusal, or so much time. A refusal costs a third of what a
	// room takes in the time of an answer, so it takes more answers the larger it is.
	answersClose         = 512
	answersClosePerPlace = 16
	timeClose            = 5 * time.Second
	// lastWeight is that of the last answer in what is known of a namespace: the part
	// of its requests that were refused, and what its answers take.
	lastWeight = 0.1
	// mostIncrease is by what an answer in good time multiplies what a namespace
	// may have.
	mostIncrease = 1.5
	// maxKnown bounds the namespaces of each kind that are remembered.
	maxKnown = 1024
)

func newRoom(floor, ceiling int, slow time.Duration) *room {
	return &room{
		floor: float64(floor), ceiling: float64(ceiling), slow: slow, limit: float64(ceiling),
		known: newStandings(), refused: newStandings(),
	}
}

func newStandings() *simplelru.LRU[string, standing] {
	known, err := simplelru.NewLRU[string, standing](maxKnown, nil)
	if err != nil {
		panic(err) // the size is a constant
	}
	return known
}

// size is how many series may be worked on.
func (r *room) size() int { return int(r.limit) }

func (r *room) isFull() bool { return r.taken >= r.size() }

// share is how many places a namespace may have that has some now.
func (r *room) share(s *standing, places int) int {
	left := r.size() - (r.taken - places)
	return max(1, int(min(sharePart*float64(left), s.most)))
}

// hasForSuspects tells whether there may be one more for any namespace that was
// slow.
func (r *room) hasForSuspects() bool { return r.suspect < max(1, r.size()/2) }

// isSuspect tells whether a namespace was slow, and not quick often enough since.
func (r *room) isSuspect(s *standing) bool { return s.most < r.ceiling }

// take takes a place for a namespace, and give gives it back.
func (r *room) take(s *standing) (suspect bool) {
	r.taken++
	if suspect = r.isSuspect(s); suspect {
		r.suspect++
	}
	return suspect
}

func (r *room) give(suspect bool) {
	r.taken--
	if suspect {
		r.suspect--
	}
}

func (r *room) standingOf(namespace string) standing {
	for _, known := range [...]*simplelru.LRU[string, standing]{r.known, r.refused} {
		if s, ok := known.Get(namespace); ok {
			return s
		}
	}
	return standing{most: r.ceiling}
}

// remember keeps the standing of a namespace that has nothing to do.
func (r *room) remember(namespace string, s standing, now time.Time) {
	r.known.Remove(namespace)
	r.refused.Remove(namespace)
	switch {
	case r.isSuspect(&s) || s.throttled > 0.5:
		r.known.Add(namespace, s)
	case s.refusal.until.After(now):
		r.refused.Add(namespace, s)
	}
}

// overloaded takes note that the apiserver had too much to do for a request that
// began at a time.
func (r *room) overloaded(began, now time.Time) {
	if began.Before(r.decreased) {
		return // the room has become smaller since
	}
	r.tooMuch, r.decreased, r.grown, r.latency = r.limit, now, now, 0
	r.limit = max(r.floor, r.limit*decrease)
}

// grow takes note of an answer in good time to a request that began at a time.
func (r *room) grow(began, now time.Time) {
	since := now.Sub(r.grown)
	r.grown = now
	if began.Before(r.decreased) {
		return // it says nothing of the room as it is now
	}
	r.latency.add(now.Sub(began), 1/r.limit)
	switch {
	case r.limit < r.tooMuch-1:
		r.limit = min(r.limit+growBack, r.tooMuch-1)
	case r.limit < r.tooMuch+1:
		r.limit += max(1/max(answersClose, answersClosePerPlace*r.limit), min(since.Seconds()/timeClose.Seconds(), growBack))
	default:
		r.tooMuch = 0
		r.limit += growOn
	}
	r.limit = min(r.ceiling, r.limit)
}

// answered takes note of an answer in a namespace to a request that began at a
// time, or, without one, that there was none.
func (r *room) answered(namespace string, s *standing, answer bool, began, now time.Time) {
	took := now.Sub(began)
	if !answer || took >= r.slow {
		r.wasSlow(namespace, s, answer, began, now)
		return
	}
	r.grow(began, now)
	s.latency.add(took, lastWeight)
	s.most = min(r.ceiling, s.most*mostIncrease)
	s.throttled -= s.throttled * lastWeight
	if r.inTime[0].namespace != namespace {
		r.inTime[1] = r.inTime[0]
	}
	r.inTime[0] = sign{namespace, now}
}

// wasSlow holds it against the namespace if others have been answered in good time
// since: it has one place then, unless its answers are quick on average. Otherwise
// it is held against the apiserver. Who has got no answer at all has half of its
// places then, too, but no fewer than the room has at least.
func (r *room) wasSlow(namespace string, s *standing, answer bool, began, now time.Time) {
	if began.Before(s.decreased) {
		return // it has fewer places since
	}
	took := now.Sub(began)
	switch own := r.othersInTime(namespace, began); {
	case own && (!answer || s.latency.add(took, lastWeight) >= r.slow):
		s.decrease(1, now)
	case own:
	case !answer:
		s.decrease(max(r.floor, s.most/2), now)
		r.overloaded(began, now)
	case !began.Before(r.decreased) && r.latency.add(took, 1/r.limit) >= r.slow:
		r.overloaded(began, now)
	}
}

func (s *standing) decrease(most float64, now time.Time) {
	s.most, s.decreased, s.latency = most, now, 0
}

// refusedAsTooMany takes note that a request in a namespace, which began at a time,
// was one too many. It is held against the apiserver unless it is the namespace's
// own limit, as the EventRateLimit admission plugin may set one: then most are
// refused there, while others are answered.
func (r *room) refusedAsTooMany(namespace string, s *standing, began, now time.Time) {
	s.throttled += (1 - s.throttled) * lastWeight
	if s.throttled < 0.5 || !r.othersInTime(namespace, now.Add(-r.slow)) {
		r.overloaded(began, now)
	}
}

// othersInTime tells whether there was an answer in good time in another namespace
// since a time.
func (r *room) othersInTime(namespace string, since time.Time) bool {
	other := r.inTime[0]
	if other.namespace == namespace {
		other = r.inTime[1]
	}
	return !other.at.Before(since)
}
