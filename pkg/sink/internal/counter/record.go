package counter

import (
	"errors"
	"reflect"
	"slices"

	"github.com/eventd/eventd/internal/eventsize"
	"github.com/eventd/eventd/pkg/occurrence"
)

// Records are what followers get of a Counter. They are plain data, and never change once they are
// made: so they are made under the lock of the counter's owner, and encoded later by another
// goroutine without it (encoding.go). What takes time, the protobuf form of an
// Event and the digest of a series, is made when they are encoded.

// Series is a series without what is pending of it.
type Series struct {
	Key                          occurrence.Key // in the process of the contributor
	Namespace, Object, EventType string
	Combined, Keyed              bool
	Identity                     SeriesIdentity
}

// SeriesIdentity is the digest of a series, or the Event that it follows from.
type SeriesIdentity struct {
	digest occurrence.Digest
	target *occurrence.Target // nil if the digest is known
}

// Digest returns the digest. It takes about a microsecond if it is not known.
func (i SeriesIdentity) Digest() occurrence.Digest {
	if i.target != nil {
		return i.target.Series()
	}
	return i.digest
}

// Addition is an occurrence that was added.
type Addition struct {
	// Series is nil if something was pending of the series before.
	Series *Series
	// Entry is that of the occurrence alone.
	Entry EntryRecord
	// Merged: the occurrence became part of the newest entry.
	Merged bool
}

// EntryRecord is an Entry, without what concerns its own process only.
type EntryRecord struct {
	Sequence          uint64
	Weight, Anonymous int64
	Claims            []Claim
	Changes           bool
	User              string
	CreateOnly        bool
	// Oldest has no Event if that is the one of Newest. Newest has none in an Addition if
	// that is the one of the newest entry before it.
	Oldest, Newest Content
	// Labels and Annotations are nil if they are those of the newest Event.
	Labels, Annotations map[string]string
	Merged              occurrence.Outcome
	Deferred            bool
}

// Series returns the series. It may be called while a worker runs Draft.Plan.
func (c *Counter) Series() *Series {
	s := &Series{Key: c.Key, Namespace: c.Namespace, Object: c.Object, EventType: c.EventType, Combined: c.combined, Keyed: c.keyed}
	if c.unidentified != nil { // Plan may be computing the digest
		s.Identity.target = &occurrence.Target{Event: c.unidentified, Combined: c.combined}
	} else {
		s.Identity.digest = c.digest
	}
	return s
}

// Digest returns the digest of the series. It must not be called while a worker runs
// Draft.Plan.
func (c *Counter) Digest() occurrence.Digest { return c.digest }

// Records returns all pending entries. It may be called while a worker runs Draft.Plan.
func (c *Counter) Records() []EntryRecord {
	out := make([]EntryRecord, 0, len(c.pending)+len(c.late))
	return appendRecords(appendRecords(out, c.pending), c.late)
}

func appendRecords(out []EntryRecord, entries []Entry) []EntryRecord {
	for i := range entries {
		out = append(out, entries[i].record())
	}
	return out
}

// addition returns the record of an occurrence that is added after the newest entry, which is
// nil if there is none.
func (c *Counter) addition(newest, e *Entry, claim Claim) (a Addition) {
	if !c.follows() {
		return a
	}
	a.Entry = e.record()
	if claim != (Claim{}) {
		a.Entry.Claims = []Claim{claim}
	}
	switch {
	case newest == nil:
		a.Series = c.Series()
	case newest.Newest.Event == e.Newest.Event:
		a.Entry.Newest.Event = nil
	}
	return a
}

// record returns the record of an entry. Only the fields are read that Draft.Plan leaves alone.
func (e *Entry) record() EntryRecord {
	r := EntryRecord{
		Sequence: e.Sequence, Weight: e.Weight, Anonymous: e.anonymous, Changes: e.changes,
		User: e.user, CreateOnly: e.createOnly,
		Oldest: e.Oldest, Newest: e.Newest,
		Merged: e.Merged, Deferred: e.Deferred,
	}
	if e.Oldest.Event == e.Newest.Event {
		r.Oldest.Event = nil
	}
	if !isSame(e.labels, e.Newest.Event.Labels) {
		r.Labels = e.labels
	}
	if !isSame(e.annotations, e.Newest.Event.Annotations) {
		r.Annotations = e.annotations
	}
	r.Claims = slices.Clone(e.claims) // later claims may become part of the last one
	return r
}

// Bytes returns the approximate memory of the record, which shares its Events with the entry.
func (r *EntryRecord) Bytes() int64 {
	n := entryBytes + int64(len(r.Claims))*claimBytes + eventsize.OfMap(r.Labels) + eventsize.OfMap(r.Annotations)
	for _, c := range []*Content{&r.Oldest, &r.Newest} {
		if c.Event != nil {
			n += c.bytes
		}
	}
	return n
}

// isSame reports whether two maps are one. Their keys are not compared, which may take long.
func isSame(a, b map[string]string) bool {
	return reflect.ValueOf(a).UnsafePointer() == reflect.ValueOf(b).UnsafePointer()
}

var errRecord = errors.New("the record of an entry is not valid")

// entry returns the entry of a record. newest is the newest one before it, nil if there is none.
func (r *EntryRecord) entry(newest *Entry) (*Entry, error) {
	e := &Entry{
		Sequence: r.Sequence, Weight: r.Weight, anonymous: r.Anonymous, changes: r.Changes,
		user: r.User, createOnly: r.CreateOnly, labels: r.Labels, annotations: r.Annotations,
		Newest: r.Newest, Oldest: r.Oldest,
		Merged: r.Merged, Deferred: r.Deferred,
	}
	if e.Newest.Event == nil && newest != nil {
		e.Newest.Event, e.Newest.bytes = newest.Newest.Event, newest.Newest.bytes
	}
	if e.Oldest.Event == nil {
		e.Oldest.Event, e.Oldest.bytes = e.Newest.Event, e.Newest.bytes
	}
	isKnown := r.Merged == occurrence.Merged || r.Merged == occurrence.Aggregated
	if e.Newest.Event == nil || !isKnown || !r.isPlausible() || max(r.Oldest.API, r.Newest.API) > occurrence.EventsV1 {
		return nil, errRecord
	}
	if e.labels == nil {
		e.labels = e.Newest.Event.Labels
	}
	if e.annotations == nil {
		e.annotations = e.Newest.Event.Annotations
	}
	if len(r.Claims) > 0 {
		e.claims = make([]Claim, 0, len(r.Claims))
	}
	for _, claim := range r.Claims {
		e.addClaim(claim)
	}
	return e, nil
}

// maxWeight is the highest weight of an entry: MaxBatch claims of the highest count twice. The sum over
// MaxBatch entries does not overflow.
const maxWeight = 2 * MaxBatch << 31

// isPlausible reports whether the numbers are those of an entry. Others would make the count of an
// Event negative.
func (r *EntryRecord) isPlausible() bool {
	sum := r.Anonymous
	for _, claim := range r.Claims {
		if claim.Total < 0 || claim.Weight < 0 || claim.Weight > maxWeight || sum > maxWeight {
			return false
		}
		sum += claim.Weight
	}
	return r.Sequence > 0 && r.Anonymous >= 0 && r.Weight == sum && sum <= maxWeight
}
