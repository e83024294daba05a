package correlator

import (
	"slices"
	"time"
)

// group has the messages of a group that have their own Events. It takes about 60 bytes,
// and 8 for each message.
type group struct {
	key     uint64
	seen    time.Duration
	members []uint64
}

// group returns the group with a key, a new one if there is none. At the limit, the new
// one replaces the one that was quiet for longest. The result is valid until the next call.
func (s *subject) group(key uint64, limit int) *group {
	for i := range s.groups {
		if s.groups[i].key == key {
			return &s.groups[i]
		}
	}
	if len(s.groups) < limit {
		s.groups = slices.Grow(s.groups, 1)[:len(s.groups)+1] // reuses the memory of members
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

// begin resets it to a group without members.
func (g *group) begin(key uint64) *group {
	*g = group{key: key, members: g.members[:0]}
	return g
}

// admit reports whether a message has its own Event. The first messages have theirs until
// the group is quiet for an interval.
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
