package replication

import (
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/counter"
)

// version is that of the frames. A follower ends a session with another one, so
// any change of a frame needs the next one.
const version = 1

// fromLeader is a frame from a leader to a follower. One field is set.
type fromLeader struct {
	Hello   *hello
	Batch   *Batch
	Answer  *answer
	Release *Mark
}

// fromFollower is a frame from a follower to a leader. One field is set.
type fromFollower struct {
	Ack      *ack
	Handover *handover
}

// hello is the first frame of a session.
type hello struct {
	Version     int
	Contributor counter.Contributor
	// Bytes is the memory of the snapshot that follows, at most.
	Bytes int64
}

// Batch has the changes since the batch before, up to a position. In the first batches of a
// stream, series of the snapshot follow. A follower applies a batch as a whole.
type Batch struct {
	Position uint64
	UpTo     uint64 // the last sequence
	Changes  []Change
	// Snapshot has further series, or parts of them, as they are after the changes. Later
	// batches have the changes of them and of those before, but none of a series of which parts
	// are left.
	Snapshot []PendingSeries
	// Complete: the snapshot is, with this batch.
	Complete bool
}

// Change is one change of what a contributor has pending.
type Change struct {
	Key      occurrence.Key
	Addition *counter.Addition
	// First and Second are the sequences of two entries that were joined, 0 if none were.
	First, Second uint64
	Settled       []uint64
}

// changeBytes is the memory of a change without an entry, in a slice that grows.
const changeBytes = 160

// bytes returns the approximate memory of a change.
func (c *Change) bytes() int64 {
	if c.Addition != nil {
		return c.Addition.Entry.Bytes()
	}
	return changeBytes + 8*int64(len(c.Settled))
}

// PendingSeries is what is pending of one series, or a part of that: the entries after those before.
type PendingSeries struct {
	Series  *counter.Series
	Entries []counter.EntryRecord
}

// partBytes is the memory of the entries in one frame, beside changes and give or take one entry.
const partBytes = 1 << 20

// nextPart removes the next part from what is pending. It has about the given bytes at most, and
// returns what is left of them.
func nextPart(pending *[]PendingSeries, left int64) (part []PendingSeries, _ int64) {
	for len(*pending) > 0 && left > 0 {
		o := &(*pending)[0]
		n := 0
		for ; n < len(o.Entries) && left > 0; n++ {
			left -= o.Entries[n].Bytes()
		}
		part = append(part, PendingSeries{o.Series, o.Entries[:n]})
		if o.Entries = o.Entries[n:]; len(o.Entries) == 0 {
			*pending = (*pending)[1:]
		}
	}
	return part, left
}

// ack acknowledges all batches up to a position.
type ack struct{ Position uint64 }

// Mark is a position of a contributor.
type Mark struct {
	Contributor counter.Contributor
	Position    uint64
}

// handover is a part of a holding. The last one has Last set.
type handover struct {
	Mark
	UpTo   uint64
	Series []PendingSeries
	Last   bool
}

// answer is that to a handover. Accepted: the leader holds it now, or something newer.
type answer struct {
	Mark
	Accepted bool
}
