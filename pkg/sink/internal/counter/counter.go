// Package counter computes what the count of a stored Event should be, and the requests that
// make it so.
//
// The count is a grow-only counter (G-counter). Sink instances and clients are its
// contributors: an annotation of the Event holds, for each of them, up to where its
// occurrences are in the count. So a counter finds out from the stored Event whether a write
// took effect whose answer was lost, and several sinks can write the same Event.
// docs/counting.md states the rules and their proofs.
//
// A Counter holds the pending occurrences of one series for one sink instance. Its owner
// calls Begin, Draft.Plan and Commit for the next request, sends that, and reports the answer
// with Succeeded, Read, Stale, Gone, Refused, Lost or Unsent. Each of them returns the entries that
// have settled: every entry settles exactly once.
//
// A Counter does no I/O, starts no goroutine and takes no lock. One goroutine at a time may
// use it, with one exception: while a worker runs Draft.Plan, others may call Add, Absorbs,
// Acknowledge, Detach, Series and Records, and read the newest entry.
package counter

import (
	"crypto/rand"
	"encoding/binary"
	"slices"
	"sort"

	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/occurrence"
)

// Counter holds the pending occurrences of a series and what is known of its stored Event. See
// the package comment for who may use it and when.
type Counter struct {
	instance Contributor
	journal  Journal // nil if nobody follows
	Key      occurrence.Key
	// Namespace is that of the Event, and Object the first part of its name.
	Namespace, Object string
	digest            occurrence.Digest // of the series; see identify
	// unidentified is an Event of the series while the digest is not known.
	unidentified *corev1.Event
	combined     bool
	// keyed: the digest is that of a correlation key, which an Event does not contain.
	keyed bool
	// message is the hash of the message of all occurrences, 0 if they have different ones.
	message uint64
	// adopted: the entries are those of another contributor, which the instance is.
	adopted   bool
	EventType string

	// pending is in order of sequence.
	pending []Entry
	// carried is the highest sequence that a write has carried. Entries up to it are no longer
	// merged. carriedByCreate: the last write was a create.
	carried         uint64
	carriedByCreate bool
	// frozen is the highest sequence in the draft that is being planned, 0 if there is none.
	frozen uint64
	// size is that of all entries, late ones included; see MaxBatch.
	size int
	// late are the entries that are added meanwhile. Commit appends them to pending: if that
	// grew, it would copy entries while Plan writes to them.
	late []Entry
	// scanned is the sequence of the oldest entry that may still be joined with the next one.
	scanned uint64
	// evicted are ends of entries that were evicted and that a write may have carried. They are
	// above the oldest that is pending.
	evicted []uint64
	// inDoubt is the highest sequence in a write whose answer was lost and which may have taken
	// effect; 0 if there is none. inDoubtBase is the object that it changes, nil for a create.
	inDoubt     uint64
	inDoubtBase *observation

	// observed is the stored Event as it was last read, nil if none is known. author is the
	// user who created it.
	observed *observation
	author   author
	// bare: the next write omits the labels and annotations of reporters, since the apiserver
	// has refused a write with them.
	bare bool
	// mustRead: the object exists, but not as it was last observed.
	mustRead bool
	// suffix counts the foreign objects found under the names before. Past
	// identity.MaxSuffix the name has a nonce instead, 0 until one is drawn.
	suffix int
	nonce  uint64
	// exclusive: no other sink can find the observed object, since admission has removed its
	// annotations. sent is the plan of the last write that was sent to it and not observed.
	exclusive bool
	sent      plan
}

// New returns a Counter for a series without pending occurrences. The journal is nil if nobody
// follows what is pending.
func New(instance Contributor, t *occurrence.Target, journal Journal) *Counter {
	c := &Counter{instance: instance, journal: journal, Key: t.Key, Namespace: t.Event.Namespace, Object: t.Name, digest: t.Digest, combined: t.Combined, keyed: t.Digest != occurrence.Digest{}, EventType: t.Event.Type}
	if !c.keyed {
		c.unidentified = t.Identified()
	}
	if !c.combined {
		c.message = hashOf(t.Event.Message)
	}
	return c
}

// identify computes the digest, unless that is done. It takes a while, so Draft.Plan does it.
// Commit forgets the Event, which Series reads meanwhile.
func (c *Counter) identify() {
	if c.unidentified != nil {
		t := occurrence.Target{Event: c.unidentified, Combined: c.combined}
		c.digest = t.Series()
	}
}

// Add adds an occurrence with a sequence higher than any before. It may become part of an
// entry whose sequence is above sealed.
func (c *Counter) Add(sequence, sealed uint64, e *Entry, claim Claim) (g Growth) {
	e.first, e.Sequence = sequence, sequence
	newest := c.Newest()
	added := c.addition(newest, e, claim)
	if c.takes(newest, e, sealed) {
		g.Size = -newest.Size()
		newest.merge(e)
		added.Merged = true
	} else {
		g = c.joinAll(e, sealed)
		list := &c.pending
		if c.frozen > 0 {
			list = &c.late
		}
		*list = append(*list, *e)
		newest, g.IsNew, g.Entries = c.Newest(), true, g.Entries+1
	}
	if claim != (Claim{}) {
		newest.addClaim(claim)
	}
	g.Bytes += newest.measure()
	g.Size += newest.Size()
	c.size += g.Size
	if c.follows() {
		c.journal.Added(c, added)
	}
	return g
}

// Acknowledge records that a client has the answer that the occurrence with a sequence will be
// written: its entry loses its callback. It returns the entry, nil if that has settled. The
// entry is valid until the counter changes. It may be called while a worker runs Draft.Plan.
func (c *Counter) Acknowledge(sequence uint64) *Entry {
	e := c.find(sequence)
	if e != nil {
		e.Notify, e.Acknowledged = nil, true
	}
	return e
}

// Detach takes the callback from the entry of the occurrence with a sequence, which stays pending. It
// returns nil if that has settled. As Acknowledge, it may be called while a worker runs Draft.Plan.
func (c *Counter) Detach(sequence uint64) (notify func(occurrence.Settlement)) {
	if e := c.find(sequence); e != nil {
		notify, e.Notify = e.Notify, nil
	}
	return notify
}

// find returns the entry of the occurrence with a sequence, nil if that has settled.
func (c *Counter) find(sequence uint64) *Entry {
	for _, list := range [][]Entry{c.pending, c.late} {
		i := indexFrom(list, sequence)
		if i < len(list) && list[i].first <= sequence {
			return &list[i]
		}
	}
	return nil
}

// indexFrom returns the index of the first entry that ends with a sequence or above. It reads no
// field that Draft.Plan writes, as a copy of an entry would.
func indexFrom(list []Entry, sequence uint64) int {
	return sort.Search(len(list), func(i int) bool { return list[i].Sequence >= sequence })
}

// Pending returns the pending entries in order of sequence.
func (c *Counter) Pending() []Entry { return c.pending }

// Newest returns the newest pending entry, nil if there is none.
func (c *Counter) Newest() *Entry {
	list := c.pending
	if len(c.late) > 0 {
		list = c.late
	}
	if len(list) == 0 {
		return nil
	}
	return &list[len(list)-1]
}

// Last returns the sequence of the newest pending entry, 0 if there is none.
func (c *Counter) Last() uint64 {
	if len(c.pending) == 0 {
		return 0
	}
	return c.pending[len(c.pending)-1].Sequence
}

// Awaited returns the last sequence of an entry with a callback, 0 if there is none.
func (c *Counter) Awaited() uint64 {
	for i := range slices.Backward(c.pending) {
		if c.pending[i].Notify != nil {
			return c.pending[i].Sequence
		}
	}
	return 0
}

// weight returns the sum over what is pending.
func (c *Counter) weight() int64 {
	var sum int64
	for i := range c.pending {
		sum += c.pending[i].Weight
	}
	return sum
}

// name returns the name of the object for the next request.
func (c *Counter) name() string {
	if c.nonce != 0 {
		return identity.UniqueName(c.Object, c.digest, c.nonce)
	}
	return identity.Name(c.Object, c.digest, c.suffix)
}

// drawName draws a random name if the object to create needs one, and returns why. The name
// of a create in doubt stays.
func (c *Counter) drawName(may Access) RandomName {
	why := NameDerived
	switch {
	case c.nonce != 0 || c.inDoubt > 0 || !c.Creates():
	case !may.Change:
		why = NameForbidden
	case may.Unmarked:
		why = NameUnmarked
	case c.suffix > identity.MaxSuffix:
		why = NameOccupied
	}
	if why != NameDerived {
		var b [8]byte
		rand.Read(b[:])                             // never fails
		c.nonce = binary.BigEndian.Uint64(b[:]) | 1 // 0 is none
	}
	return why
}

// isExclusive reports whether no other sink can find the object under the name.
func (c *Counter) isExclusive() bool { return c.exclusive || c.nonce != 0 }

// IsStored reports whether the Event is known to be stored.
func (c *Counter) IsStored() bool { return c.observed != nil }
