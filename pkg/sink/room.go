package sink

import (
	"math/rand/v2"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/eventd/eventd/internal/occurrence"
)

// room is how many series may be worked on at once. It follows what the apiserver
// shows that it can take: an answer that it has too much to do makes the room
// smaller by a part, each answer in good time a little larger.
//
// No namespace may have all of it. One whose requests are slow, because an
// admission webhook in it does not answer, say, may have less and less, down to
// one, which finds out whether that is over.
//
// Whoever owns it guards it.
type room struct {
	floor, ceiling float64
	slow           time.Duration // an answer that takes as long as this is slow

	limit     float64
	decreased time.Time
	// pause is how long the last wait was for an apiserver that cannot be reached,
	// 0 if it can; paused is when it began, and resume when it ends.
	pause          time.Duration
	paused, resume time.Time
	// known are the namespaces that are not in good standing, while they have
	// nothing to do.
	known *simplelru.LRU[string, standing]
}

// standing is what is known of a namespace.
type standing struct {
	// part of the room that it may have.
	part      float64
	decreased time.Time
	// refused is why no Event can be created in it, through each API.
	verdicts [2]verdict
}

// verdict is what the apiserver said of a namespace that is missing or being
// deleted. It holds for all that was there to be created, and is the answer to
// whoever waits for one; what else has come since waits until it is time to ask
// again. The zero verdict is none.
type verdict struct {
	reason occurrence.Reason
	err    error
	upTo   uint64 // the last sequence at the time
	until  time.Time
}

const (
	// goodPart leaves room for others while all requests in a namespace hang.
	goodPart = 0.75
	// decreases are of what there is, and so is the increase of a namespace's
	// part. The room increases by one with as many answers as it has places.
	roomDecrease = 0.8
	partDecrease = 0.5
	partIncrease = 1.5
	// An apiserver that cannot be reached is tried again after pauses that double.
	minPause, maxPause = 50 * time.Millisecond, time.Second
	// maxKnown bounds the namespaces that are remembered.
	maxKnown = 1024
)

func newRoom(floor, ceiling int, slow time.Duration) *room {
	known, err := simplelru.NewLRU[string, standing](maxKnown, nil)
	if err != nil {
		panic(err) // the size is a constant
	}
	return &room{floor: float64(floor), ceiling: float64(ceiling), slow: slow, limit: float64(ceiling), known: known}
}

// size is how many series may be worked on. While the apiserver cannot be reached,
// one finds out whether that is over.
func (r *room) size() int {
	if r.pause > 0 {
		return 1
	}
	return int(r.limit)
}

// sizeFor is how many of them may be in a namespace. Where nothing could be
// created, one finds out whether that is over.
func (r *room) sizeFor(s *standing) int {
	if s.verdicts != ([2]verdict{}) {
		return 1
	}
	return max(1, int(r.limit*s.part))
}

func (r *room) standingOf(namespace string) standing {
	if s, ok := r.known.Get(namespace); ok {
		return s
	}
	return standing{part: goodPart}
}

// remember keeps the standing of a namespace that has nothing to do.
func (r *room) remember(namespace string, s standing, now time.Time) {
	if s.part < goodPart || s.verdicts[occurrence.CoreV1].until.After(now) || s.verdicts[occurrence.EventsV1].until.After(now) {
		r.known.Add(namespace, s)
	} else {
		r.known.Remove(namespace)
	}
}

// overloaded takes note that the apiserver had too much to do for a request that
// began at a time.
func (r *room) overloaded(began, now time.Time) {
	if began.Before(r.decreased) {
		return // the room has become smaller since
	}
	r.limit = max(r.floor, r.limit*roomDecrease)
	r.decreased = now
}

// unreachable takes note that a request that began at a time did not get as far
// as the apiserver.
func (r *room) unreachable(began, now time.Time) {
	if began.Before(r.paused) {
		return // it is known
	}
	r.pause = min(max(2*r.pause, minPause), maxPause)
	r.paused, r.resume = now, now.Add(r.pause/2+rand.N(r.pause/2))
}

// reached takes note that the apiserver is there.
func (r *room) reached() { r.pause, r.resume = 0, time.Time{} }

// answered takes note of an answer to a request in a namespace, or that there was
// none. If it is slow that is held against the namespace, and against the
// apiserver only if the namespace was in good standing.
func (r *room) answered(s *standing, began, now time.Time) {
	if now.Sub(began) < r.slow {
		r.limit = min(r.ceiling, r.limit+1/r.limit)
		s.part = min(goodPart, s.part*partIncrease)
		return
	}
	if began.Before(s.decreased) {
		return // its part has become smaller since
	}
	if s.part == goodPart {
		r.overloaded(began, now)
	}
	s.part = max(1/r.ceiling, s.part*partDecrease)
	s.decreased = now
}
