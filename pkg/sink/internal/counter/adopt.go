package counter

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/occurrence"
)

// maxAhead is by how much the share of a contributor may be above what was adopted of it. What
// the contributor has recorded since was not held: an hour at 100,000 occurrences a second, with
// sequences of the highest steps.
const maxAhead = 1 << 49

// Adopt returns a Counter for what another contributor has pending of a series: the records of a Held.
// It writes in the name of the contributor, all entries at once. They have no owner and no
// callback, and nothing may be added. What the Event includes already settles as found. Where
// Events of other processes cannot be found, all settles as uncertain. The Key is not that of the
// series in any process. The journal may be nil.
func Adopt(contributor Contributor, s Series, entries []EntryRecord, journal Journal) *Counter {
	c := &Counter{
		instance: contributor, journal: journal, adopted: true,
		Key: adoptedKey(contributor, s.Key), Namespace: s.Namespace, Object: s.Object, EventType: s.EventType,
		digest: s.Identity.Digest(), combined: s.Combined, keyed: s.Keyed,
		pending: make([]Entry, 0, len(entries)),
	}
	for i := range entries {
		if e, err := entries[i].entry(nil); err == nil { // a Held has no others
			e.first, e.Acknowledged = e.Sequence, true // maybe
			c.pending = append(c.pending, *e)
			c.size += e.Size()
		}
	}
	return c
}

func adoptedKey(contributor Contributor, key occurrence.Key) occurrence.Key {
	b := binary.BigEndian.AppendUint64(contributor[:], key.A)
	b = binary.BigEndian.AppendUint64(b, key.B)
	return occurrence.KeyOf(sha256.Sum256(b))
}

// canFind reports whether the Event that the contributor may have written can be found.
func (c *Counter) canFind(may Access) bool {
	return may.Change && !may.Unmarked && c.suffix <= identity.MaxSuffix
}
