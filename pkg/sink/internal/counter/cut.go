package counter

import "math"

// The boundary between two entries is a cut. What a follower holds ends at one, and so may a
// write of the follower in the name of the contributor. A cut inside an entry would have the
// contributor add the whole entry again. So the journal keeps the cuts at which a follower may
// be (docs/replication-protocol.md, rules Cut and Seal).

// maxScanned bounds the cuts at which an addition looks for one that need not stay.
const maxScanned = 8

// follows reports whether the journal follows what is pending.
func (c *Counter) follows() bool { return c.journal != nil && !c.adopted }

// takes reports whether an occurrence becomes part of the newest entry.
func (c *Counter) takes(newest, e *Entry, sealed uint64) bool {
	return newest != nil && newest.Sequence > c.fixed(sealed) && newest.accepts(e) &&
		(c.journal == nil || !c.journal.Keeps(newest.Sequence, math.MaxUint64))
}

// fixed returns the highest sequence of an entry that may not change any more.
func (c *Counter) fixed(sealed uint64) uint64 { return max(sealed, c.carried, c.frozen) }

// newestList returns the list that ends with the newest entry.
func (c *Counter) newestList() *[]Entry {
	if len(c.late) > 0 {
		return &c.late
	}
	return &c.pending
}

// joinable returns the index of the first of two entries that can be joined, so that an occurrence
// of the same owner becomes an entry. It returns -1 if there are none among the oldest ones.
func (c *Counter) joinable(e *Entry, sealed uint64) int {
	if c.journal == nil {
		return -1
	}
	list := *c.newestList()
	i := indexFrom(list, max(c.fixed(sealed)+1, c.scanned))
	for ; i < len(list)-1 && !list[i].admits(&list[i+1]); i++ {
		c.scanned = list[i+1].Sequence
	}
	for end := min(i+maxScanned, len(list)-1); i < end; i++ {
		if c.joins(&list[i], &list[i+1], e.Owner) {
			return i
		}
	}
	return -1
}

// admits reports whether an entry can ever be joined with the next one, and takes less memory then.
// A callback may be dropped; see Acknowledge.
func (e *Entry) admits(next *Entry) bool {
	return e.suits(next) && e.Size()+len(next.claims) <= MaxBatch && e.joinedBytes(next) <= 0
}

// joins reports whether two entries of an owner can be joined, and their cut need not stay.
func (c *Counter) joins(first, second *Entry, owner any) bool {
	return first.Owner == owner && first.accepts(second) && !c.journal.Keeps(first.Sequence, second.Sequence) && first.admits(second)
}

// joinAll joins the entries of the owner of an occurrence whose cuts need not stay. Usually these
// are the oldest one and those that a follower has acknowledged since the last addition.
func (c *Counter) joinAll(e *Entry, sealed uint64) (g Growth) {
	i := c.joinable(e, sealed)
	if i < 0 {
		return g
	}
	list := c.newestList()
	kept := (*list)[:i+1]
	for _, next := range (*list)[i+1:] {
		last := &kept[len(kept)-1]
		if !c.joins(last, &next, e.Owner) {
			kept = append(kept, next)
			continue
		}
		c.journal.Joined(c, last.Sequence, next.Sequence)
		g.Entries--
		g.Left = append(g.Left, next.Generation)
		g.Size -= last.Size() + next.Size()
		g.Bytes += last.join(&next)
		g.Size += last.Size()
	}
	clear((*list)[len(kept):])
	*list = kept
	return g
}

// join adds the entry that follows, and returns by how much the memory of both has grown.
func (e *Entry) join(next *Entry) int64 {
	e.merge(next)
	for _, claim := range next.claims {
		e.addClaim(claim)
	}
	return e.measure() - next.Bytes
}

// joinedBytes returns what join would.
func (e *Entry) joinedBytes(next *Entry) int64 {
	claims := len(e.claims) + len(next.claims)
	if len(next.claims) > 0 && e.endsAt(next.claims[0]) {
		claims--
	}
	trial := *e
	trial.merge(next)
	return trial.memory(claims) - e.Bytes - next.Bytes
}

// Absorbs reports whether Add would take no more memory: if the occurrence becomes part of the
// newest entry and has nothing new to keep, or if others are joined for it.
func (c *Counter) Absorbs(_, sealed uint64, e Entry, claim Claim) bool {
	newest := c.Newest()
	if c.takes(newest, &e, sealed) {
		if claim != (Claim{}) && !newest.endsAt(claim) {
			return false
		}
		trial := *newest
		trial.merge(&e)
		return trial.measure() <= 0
	}
	i := c.joinable(&e, sealed)
	if i < 0 {
		return false
	}
	list := *c.newestList()
	if claim != (Claim{}) {
		e.addClaim(claim)
	}
	return list[i].joinedBytes(&list[i+1])+e.measure() <= 0
}
