package counter

import (
	"github.com/eventd/eventd/pkg/occurrence"
)

// Journal follows what counters have pending. Its methods are called under the lock of the
// counters' owner, in the order of the changes, and must not block. Counted is also called by
// Draft.Plan, without that lock.
//
// Adopted counters call Counted only: what they have pending is that of another contributor.
type Journal interface {
	// Added: an occurrence became an entry, or part of the newest one.
	Added(c *Counter, a Addition)
	// Joined: the entry with the sequence first became part of the next one, which has the
	// sequence second.
	Joined(c *Counter, first, second uint64)
	// Settled: entries are no longer pending, whatever their outcome is. It is not called for
	// what is handed over.
	Settled(c *Counter, sequences []uint64)
	// Keeps reports whether the cut after the entry with the sequence first, and before that
	// of second, must stay. second is math.MaxUint64 for an occurrence that is being added.
	Keeps(first, second uint64) bool
	// Sent returns the highest sequence that a follower may hold, 0 if there is none.
	Sent() uint64
	// Counted returns the highest total of a client that this process has seen to be counted
	// on an Event of a series, 0 if there is none. See Settled.Totals.
	Counted(series occurrence.Digest, event EventID, client Contributor) uint64
}

// Growth is what an addition has changed. All of it concerns the owner of the occurrence.
type Growth struct {
	// IsNew: the occurrence became an entry, whose Generation the owner sets.
	IsNew bool
	// Entries is by how many entries there are more. It may be negative.
	Entries int
	// Bytes is by how many bytes the memory has grown. It may be negative.
	Bytes int64
	// Size is by how much more of MaxBatch they use. It may be negative.
	Size int
	// Left are the Generations of the entries that were joined to others.
	Left []uint64
}
