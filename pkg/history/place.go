package history

import "math"

// Place is where a follower of this process is. Two followers at the same place read the same next.
type Place struct {
	position
	next int64
}

// End is after all places.
var End = Place{next: math.MaxInt64}

// Before reports whether a follower at p has less read than one at q.
func (p Place) Before(q Place) bool {
	if p.epoch != q.epoch {
		return p.epoch < q.epoch
	}
	return p.next < q.next || p.next == q.next && p.rv < q.rv
}

// Place returns where the follower is. It is at no place until it has once read all there was, nor while it has
// decoded more than it has returned.
func (f *Follower) Place() (place Place, ok bool) {
	return Place{f.place, f.next}, f.met && len(f.ahead) == 0
}

// MoveTo has the follower continue from a place of another one. It returns what Read returns as the point that is
// reached, which is not empty.
func (f *Follower) MoveTo(p Place) (resourceVersion string) {
	f.setAhead(nil)
	f.place, f.next, f.placed, f.met = p.position, p.next, true, true
	return f.place.String()
}
