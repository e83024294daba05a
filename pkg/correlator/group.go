package correlator

import (
	"slices"
	"time"
)

// group is what is remembered of a group: which messages have Events of their
// own. It takes about 60 bytes, and 8 for each message.
type group struct {
	key     uint64
	seen    time.Duration
	members []uint64
}

// group returns the group with a key, a new one if there is none. If there are
// too many, the one that has been quiet for longest makes room. What is returned
// is good until the next call.
func (s *subject) group(key uint64, limit int) *group {
	for i := range s.groups {
		if s.groups[i].key == key {
			return &s.groups[i]
		}
	}
	if len(s.groups) < limit {
		s.groups = slices.Grow(s.groups, 1)[:len(s.groups)+1] // with the memory of its members, if it has been used
		return s.groups[len(s.groups)-1].begin(key)
	}
	quietest := &s.groups[0]
	for i := range s.groups {
		if s.groups[i].seen < quietest.seen {
			quietest = &s.groups[i]
		}
	}
	return quietest.begin(key)
}

// begin makes it a group without members.
func (g *group) begin(key uint64) *group {
	*g = group{key: key, members: g.members[:0]}
	return g
}

// admit tells whether a message has an Event of its own. Those that came first
// keep theirs for as long as the group is not quiet for a whole interval.
func (g *group) admit(member uint64, o *Options, now time.Duration) bool {
	if now-g.seen > o.Interval {
		g.members = g.members[:0]
	}
	g.seen = now
	if slices.Contains(g.members, member) {
		return true
	}
	if len(g.members)+1 >= o.MaxMessages {
		return false
	}
	g.members = append(g.members, member)
	return true
}
