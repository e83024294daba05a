package frame

import "time"

// Recent are the requests of a session that have begun a moment ago: what is written of one of
// them lingers for the others. Those that hang are not recent, so nobody waits for them.
// The zero value has none.
type Recent struct{ begun []begun } // some have ended

type begun struct {
	id uint64
	at time.Time
}

// Add adds a request that begins now.
func (r *Recent) Add(id uint64) { r.begun = append(r.begun, begun{id, time.Now()}) }

// Any reports whether one is open.
func (r *Recent) Any(open func(id uint64) bool) bool {
	for now := time.Now(); len(r.begun) > 0; r.begun = r.begun[1:] {
		if first := r.begun[0]; now.Sub(first.at) < linger && open(first.id) {
			return true
		}
	}
	return false
}
