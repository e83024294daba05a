package sink

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
	claimBytes = 2 * int64(unsafe.Sizeof(claim{}))
)

// entry is one pending occurrence, or several that nobody waits for and that no
// write had carried yet when they came together.
type entry struct {
	sequence   uint64 // of the newest
	generation uint64 // of the oldest
	weight     int64  // of all
	anonymous  int64  // the part of the weight whose reporters do not count by themselves
	claims     []claim
	changes    bool // one of them adds nothing to the count and changes something else
	// user is the one who reported the oldest, or all if they are createOnly.
	user       string
	createOnly bool
	// What the last write that carried it added for it, and, if it was limited, what
	// it did not add since the user may not change the Event. See author.
	planned, forbidden int64
	limited            bool

	oldest, newest content
	// labels and annotations of all of them; later ones win.
	labels, annotations map[string]string

	merged  occurrence.Outcome          // if the Event is not created for it
	settled func(occurrence.Settlement) // nil if nobody waits
	// deferred: the write was to wait when the oldest came.
	deferred bool
	// acknowledged: a client was told that one of them will be written.
	acknowledged bool
	holding      *holding // that it is part of
	bytes        int64    // what it was last counted to take
}

// claim is what a client that counts by itself reports: it has reached a total,
// of which the last part, the weight, is new.
type claim struct {
	client        contributor
	total, weight int64
}

// above is the part of the interval (total-weight, total] that lies above what is
// counted of the client.
func (c *claim) above(counted uint64) int64 {
	reached := min(int64(min(counted, math.MaxInt64)), c.total)
	return min(c.weight, c.total-reached)
}

// content is what an occurrence says beside its count.
type content struct {
	event    *corev1.Event // its target's
	api      occurrence.API
	recorded time.Time
	bytes    int64 // about what the Event takes
}

// newEntry returns the entry of an occurrence, without a sequence, and its claim
// if it has one.
func newEntry(o *occurrence.Occurrence, t *occurrence.Target) (entry, claim) {
	content := content{event: t.Event, api: o.API, recorded: o.Recorded, bytes: eventsize.Of(t.Event)}
	e := entry{
		weight: o.Weight, changes: o.Weight == 0,
		oldest: content, newest: content,
		labels: t.Event.Labels, annotations: t.Event.Annotations,
		merged: t.Merged(), settled: o.Settled,
		user: o.User, createOnly: o.CreateOnly,
	}
	if o.Client == "" {
		e.anonymous = o.Weight
		return e, claim{}
	}
	return e, claim{client: clientKey(o.Client), total: o.Total, weight: o.Weight}
}

// size is what the entry adds to a batch.
func (e *entry) size() int { return 1 + len(e.claims) }

// takes tells whether a further occurrence may become part of the entry. What
// different flows report stays apart, so that each is charged for its own.
func (e *entry) takes(next *entry) bool {
	return e.holding == next.holding && e.settled == nil && next.settled == nil && e.size() < maxBatch &&
		e.createOnly == next.createOnly && (!e.createOnly || e.user == next.user)
}

// merge makes a later occurrence part of the entry.
func (e *entry) merge(next *entry) {
	e.sequence, e.newest, e.merged = next.sequence, next.newest, next.merged
	e.weight += next.weight
	e.anonymous += next.anonymous
	e.changes = e.changes || next.changes
	e.acknowledged = e.acknowledged || next.acknowledged
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
func (e *entry) claim(c claim) {
	if e.endsAt(c) {
		last := &e.claims[len(e.claims)-1]
		last.total, last.weight = c.total, last.weight+c.weight
		return
	}
	e.claims = append(e.claims, c)
}

// endsAt tells whether a claim begins where the last one ends, and is the same
// client's.
func (e *entry) endsAt(c claim) bool {
	if len(e.claims) == 0 {
		return false
	}
	last := &e.claims[len(e.claims)-1]
	return last.client == c.client && last.total == c.total-c.weight
}

// measure counts what the entry takes, and returns by how much it has grown.
func (e *entry) measure() int64 {
	before := e.bytes
	e.bytes = entryBytes + e.newest.bytes + int64(len(e.claims))*claimBytes
	if e.oldest.event != e.newest.event {
		// Labels and annotations may be those of a third one.
		e.bytes += e.oldest.bytes + eventsize.OfMap(e.labels) + eventsize.OfMap(e.annotations)
	}
	return e.bytes - before
}
