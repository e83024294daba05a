package counter

import (
	"maps"
	"math"
	"time"
	"unsafe"

	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/internal/eventsize"
	"github.com/eventd/eventd/pkg/occurrence"
)

const (
	// entryBytes is what an entry takes beside its Events, in a slice that grows.
	entryBytes = 512
	// claimBytes is what a claim takes in a slice that grows.
	claimBytes = 2 * int64(unsafe.Sizeof(Claim{}))
)

// entry is one pending occurrence, or several that nobody waits for and that no
// write had carried yet when they came together.
type Entry struct {
	Sequence   uint64 // of the newest
	Generation uint64 // of the oldest
	Weight     int64  // of all
	anonymous  int64  // the part of the weight whose reporters do not count by themselves
	claims     []Claim
	changes    bool // one of them adds nothing to the count and changes something else
	// user is the one who reported the oldest, or all if they are createOnly.
	user       string
	createOnly bool
	// What the last write that carried it added for it, and, if it was limited, what
	// it did not add since the user may not change the Event. See author.
	planned, Forbidden int64
	limited            bool

	Oldest, Newest Content
	// labels and annotations of all of them; later ones win.
	labels, annotations map[string]string

	Merged occurrence.Outcome          // if the Event is not created for it
	Notify func(occurrence.Settlement) // nil if nobody waits
	// deferred: the write was to wait when the oldest came.
	Deferred bool
	// acknowledged: a client was told that one of them will be written.
	Acknowledged bool
	// owner is whom the entry is charged to. Entries of different owners are not merged.
	Owner any
	Bytes int64 // what it was last counted to take
}

// claim is what a client that counts by itself reports: it has reached a total,
// of which the last part, the weight, is new.
type Claim struct {
	client        Contributor
	total, weight int64
}

// above is the part of the interval (total-weight, total] that lies above what is
// counted of the client.
func (c *Claim) above(counted uint64) int64 {
	reached := min(int64(min(counted, math.MaxInt64)), c.total)
	return min(c.weight, c.total-reached)
}

// content is what an occurrence says beside its count.
type Content struct {
	Event    *corev1.Event // its target's
	api      occurrence.API
	Recorded time.Time
	bytes    int64 // about what the Event takes
}

// newEntry returns the entry of an occurrence, without a sequence, and its claim
// if it has one.
func NewEntry(o *occurrence.Occurrence, t *occurrence.Target) (Entry, Claim) {
	content := Content{Event: t.Event, api: o.API, Recorded: o.Recorded, bytes: eventsize.Of(t.Event)}
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
	return e, Claim{client: clientKey(o.Client), total: o.Total, weight: o.Weight}
}

// size is what the entry adds to a batch.
func (e *Entry) size() int { return 1 + len(e.claims) }

// takes tells whether a further occurrence may become part of the entry. What
// different flows report stays apart, so that each is charged for its own.
func (e *Entry) accepts(next *Entry) bool {
	return e.Owner == next.Owner && e.Notify == nil && next.Notify == nil && e.size() < MaxBatch &&
		e.createOnly == next.createOnly && (!e.createOnly || e.user == next.user)
}

// merge makes a later occurrence part of the entry.
func (e *Entry) merge(next *Entry) {
	e.Sequence, e.Newest, e.Merged = next.Sequence, next.Newest, next.Merged
	e.Weight += next.Weight
	e.anonymous += next.anonymous
	e.changes = e.changes || next.changes
	e.Acknowledged = e.Acknowledged || next.Acknowledged
	e.labels = union(e.labels, next.labels)
	e.annotations = union(e.annotations, next.annotations)
}

// union has what is in either map, the later one's values where both have a key.
// It changes neither, and makes a new one only if it has to. What no Event could
// have is not kept: then it is the later one.
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

// maxSaid is the most that the apiserver takes in annotations
// (apimachinery/pkg/api/validation, TotalAnnotationSizeLimitB).
const maxSaid = 256 << 10

func both(earlier, later map[string]string) map[string]string {
	out := maps.Clone(earlier)
	maps.Copy(out, later)
	if eventsize.OfMap(out) > maxSaid {
		return later
	}
	return out
}

// claim adds a claim. One that begins where the last one of the same client ends
// makes one interval with it, which a plan counts as it would count both.
func (e *Entry) addClaim(c Claim) {
	if e.endsAt(c) {
		last := &e.claims[len(e.claims)-1]
		last.total, last.weight = c.total, last.weight+c.weight
		return
	}
	e.claims = append(e.claims, c)
}

// endsAt tells whether a claim begins where the last one ends, and is the same
// client's.
func (e *Entry) endsAt(c Claim) bool {
	if len(e.claims) == 0 {
		return false
	}
	last := &e.claims[len(e.claims)-1]
	return last.client == c.client && last.total == c.total-c.weight
}

// estimate is about what the entry of a single occurrence takes.
func (e *Entry) Estimate() int64 { return entryBytes + e.Newest.bytes }

// measure counts what the entry takes, and returns by how much it has grown.
func (e *Entry) measure() int64 {
	before := e.Bytes
	e.Bytes = entryBytes + e.Newest.bytes + int64(len(e.claims))*claimBytes
	if e.Oldest.Event != e.Newest.Event {
		// Labels and annotations may be those of a third one.
		e.Bytes += e.Oldest.bytes + eventsize.OfMap(e.labels) + eventsize.OfMap(e.annotations)
	}
	return e.Bytes - before
}
