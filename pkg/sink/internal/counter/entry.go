package counter

import (
	"maps"
	"math"
	"time"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/internal/eventsize"
	"github.com/eventd/eventd/pkg/occurrence"
)

const (
	// entryBytes is the memory of an entry beside its Events, in a slice that grows.
	entryBytes = 512
	// claimBytes is the memory of a claim in a slice that grows.
	claimBytes = 2 * int64(unsafe.Sizeof(Claim{}))
)

// Entry is one pending occurrence, or several without callbacks that no write has carried yet.
type Entry struct {
	Sequence   uint64 // of the newest
	first      uint64 // sequence of the oldest
	Generation uint64 // of the oldest
	Weight     int64  // of all
	anonymous  int64  // the part of the weight without a client that counts
	claims     []Claim
	changes    bool // one of them changes the Event without adding to the count
	// user has reported the oldest, and all if they are createOnly.
	user       string
	createOnly bool
	// planned is what the last write that carried it added to the count. If it was limited,
	// Forbidden is what it did not add since the user may not change the Event. See author.
	planned, Forbidden int64
	limited            bool

	Oldest, Newest Content
	// labels and annotations are those of all; later ones win.
	labels, annotations map[string]string

	Merged occurrence.Outcome          // the outcome, unless it creates the Event
	Notify func(occurrence.Settlement) // callback for the outcome, may be nil
	// Deferred: the write of the oldest had a deadline in the future.
	Deferred bool
	// Acknowledged: a client has an answer that one of them will be written.
	Acknowledged bool
	// Owner is charged for the entry. Entries of different owners are not merged.
	Owner any
	Bytes int64 // of memory
}

// Claim is the report of a client that counts: it has reached a total, of which the last part,
// the weight, is new.
type Claim struct {
	Client        Contributor
	Total, Weight int64
}

// above returns the part of the interval (total-weight, total] above what is counted of the
// client.
func (c *Claim) above(counted uint64) int64 {
	reached := min(int64(min(counted, math.MaxInt64)), c.Total)
	return min(c.Weight, c.Total-reached)
}

// Content is an occurrence without its count.
type Content struct {
	Event    *corev1.Event // its target's; a record may have none
	API      occurrence.API
	Recorded time.Time
	bytes    int64 // memory of the Event, approximately
}

// notBefore returns the content with a time that is not before that of an older one, whose time would be lost. Most
// contents are later.
func (c Content) notBefore(older *Content) Content {
	c.Recorded = later(c.Recorded, older.Recorded)
	if last := older.lastTime(); last.After(c.lastTime()) {
		event := *c.Event                                                               // others read it
		event.Series = &corev1.EventSeries{LastObservedTime: metav1.NewMicroTime(last)} // no write has it
		c.Event, c.bytes = &event, eventsize.Of(&event)
	}
	return c
}

// NewEntry returns the entry of an occurrence, without a sequence, and its claim if it has one.
func NewEntry(o *occurrence.Occurrence, t *occurrence.Target) (Entry, Claim) {
	content := Content{Event: t.Event, API: o.API, Recorded: o.Recorded, bytes: eventsize.Of(t.Event)}
	e := Entry{
		Weight: o.Weight, changes: o.Weight == 0,
		Oldest: content, Newest: content,
		labels: t.Event.Labels, annotations: t.Event.Annotations,
		Merged: t.Merged(), Notify: o.Settled,
		user: o.User, createOnly: o.CreateOnly,
	}
	if o.Client == "" {
		e.anonymous = o.Weight
		return e, Claim{}
	}
	return e, Claim{Client: clientKey(o.Client), Total: o.Total, Weight: o.Weight}
}

// Size returns which part of MaxBatch the entry uses.
func (e *Entry) Size() int { return 1 + len(e.claims) }

// User returns the user that has reported the oldest occurrence. All of an entry are of one tenant.
func (e *Entry) User() string { return e.user }

// accepts reports whether a further occurrence may become part of the entry. Different owners
// have entries of their own, so that each is charged for its own.
func (e *Entry) accepts(next *Entry) bool {
	return e.Notify == nil && next.Notify == nil && e.Size() < MaxBatch && e.suits(next)
}

// suits reports whether two entries are of the same owner, and of users with the same rights.
func (e *Entry) suits(next *Entry) bool {
	return e.Owner == next.Owner && e.createOnly == next.createOnly && (!e.createOnly || e.user == next.user)
}

// merge adds a later occurrence to the entry.
func (e *Entry) merge(next *Entry) {
	e.Sequence, e.Newest, e.Merged = next.Sequence, next.Newest.notBefore(&e.Newest), next.Merged
	e.Weight += next.Weight
	e.anonymous += next.anonymous
	e.changes = e.changes || next.changes
	e.Acknowledged = e.Acknowledged || next.Acknowledged
	e.labels = union(e.labels, next.labels)
	e.annotations = union(e.annotations, next.annotations)
}

// union returns the keys of both maps, with the later value if both have a key. It changes
// neither, and copies only if necessary. If the result is too large for an Event, it is the
// later map.
func union(earlier, later map[string]string) map[string]string {
	if len(later) == 0 {
		return earlier
	}
	for k := range earlier {
		if _, ok := later[k]; !ok {
			return both(earlier, later)
		}
	}
	return later
}

// maxAnnotations is the limit of the apiserver for all annotations
// (apimachinery/pkg/api/validation, TotalAnnotationSizeLimitB).
const maxAnnotations = 256 << 10

func both(earlier, later map[string]string) map[string]string {
	out := maps.Clone(earlier)
	maps.Copy(out, later)
	if eventsize.OfMap(out) > maxAnnotations {
		return later
	}
	return out
}

// addClaim adds a claim. One that begins where the last one of the same client ends is merged
// with it, which adds the same to the count.
func (e *Entry) addClaim(c Claim) {
	if e.endsAt(c) {
		last := &e.claims[len(e.claims)-1]
		last.Total, last.Weight = c.Total, last.Weight+c.Weight
		return
	}
	e.claims = append(e.claims, c)
}

// endsAt reports whether a claim begins where the last one ends, and is of the same client.
func (e *Entry) endsAt(c Claim) bool {
	if len(e.claims) == 0 {
		return false
	}
	last := &e.claims[len(e.claims)-1]
	return last.Client == c.Client && last.Total == c.Total-c.Weight
}

// Estimate returns the approximate memory of the entry of a single occurrence.
func (e *Entry) Estimate() int64 { return entryBytes + e.Newest.bytes }

// measure updates the memory of the entry, and returns the growth.
func (e *Entry) measure() int64 {
	before := e.Bytes
	e.Bytes = e.memory(len(e.claims))
	return e.Bytes - before
}

// memory returns the approximate memory of the entry with a number of claims.
func (e *Entry) memory(claims int) int64 {
	bytes := entryBytes + e.Newest.bytes + int64(claims)*claimBytes
	if e.Oldest.Event != e.Newest.Event {
		// Labels and annotations may be those of a third one.
		bytes += e.Oldest.bytes + eventsize.OfMap(e.labels) + eventsize.OfMap(e.annotations)
	}
	return bytes
}
