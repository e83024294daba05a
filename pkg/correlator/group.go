package correlator

import (
	"slices"
	"time"
)

// group has the messages of a group that have their own Events: the first one is in it, and further
// ones are beside it, since most groups have none. Of both keys, 0 is none.
type group struct {
	key   uint64
	seen  time.Duration
	first uint64
}

// fullGroup is a group with its further messages.
type fullGroup struct {
	group
	further []uint64
}

// notNone returns a key that is not 0, without its lowest bit.
func notNone(key uint64) uint64 { return key | 1 }

// admit reports whether a message of a group has its own Event. See group.admit.
func (s *subject) admit(key, member uint64, o *Options, now time.Duration) (ok bool) {
	if g := s.furtherGroup(notNone(key), o.MaxSeries); g != nil {
		g.further, ok = g.admit(g.further, member, o, now)
		return ok
	}
	var further []uint64
	if s.rest != nil {
		further = s.rest.further
	}
	if further, ok = s.group.admit(further, member, o, now); len(further) > 0 || s.rest != nil {
		s.more().further = further
	}
	return ok
}

// furtherGroup returns the group with a key, a new one if there is none, or nil if it is the first
// one. At the limit, the new one replaces the one that was quiet for longest. The result is valid until
// the next call.
func (s *subject) furtherGroup(key uint64, limit int) *fullGroup {
	switch s.group.key {
	case key:
		return nil
	case 0:
		s.group = group{key: key}
		return nil
	}
	var groups []fullGroup
	if s.rest != nil {
		groups = s.rest.groups
	}
	for i := range groups {
		if groups[i].key == key {
			return &groups[i]
		}
	}
	if 1+len(groups) < limit {
		s.more().groups = append(groups, fullGroup{group: group{key: key}})
		return &s.rest.groups[len(groups)]
	}
	quietest, seen := -1, s.group.seen
	for i := range groups {
		if groups[i].seen < seen {
			quietest, seen = i, groups[i].seen
		}
	}
	if quietest < 0 {
		s.group = group{key: key} // admit forgets its further messages with the first one
		return nil
	}
	groups[quietest] = fullGroup{group{key: key}, groups[quietest].further[:0]}
	return &groups[quietest]
}

// admit reports whether a message has its own Event, and returns the messages of the group but the
// first. The first messages have theirs until the group is quiet for an interval.
func (g *group) admit(further []uint64, member uint64, o *Options, now time.Duration) (_ []uint64, ok bool) {
	member = notNone(member)
	if g.first == 0 || now-g.seen > o.Interval {
		g.first, further = 0, further[:0]
	}
	g.seen = now
	switch {
	case g.first == member, slices.Contains(further, member):
		return further, true
	case g.first == 0 && o.MaxMessages > 1:
		g.first = member
		return further, true
	case 1+len(further)+1 >= o.MaxMessages:
		return further, false
	}
	return append(further, member), true
}
