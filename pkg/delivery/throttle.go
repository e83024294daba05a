package delivery

import (
	"crypto/sha256"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/eventd/eventd/internal/eventsize"
	"github.com/eventd/eventd/internal/fairlru"
	"github.com/eventd/eventd/internal/minheap"
	"github.com/eventd/eventd/pkg/observer"
)

const (
	// MaxThrottleBytes bounds the groups of one receiver, in memory: 2,000 groups, or 500 that
	// hold a usual Event.
	MaxThrottleBytes = 1 << 20
	// groupBytes is the size of a group without the Event that it holds.
	groupBytes = 512
)

// Throttle is how a route limits what it delivers to a receiver. It is safe for concurrent use.
type Throttle interface {
	// Interval is the time in which the receiver gets one Event of a group.
	Interval() time.Duration
	// Group identifies the group of an Event, which it only reads.
	Group(event *corev1.Event) [sha256.Size]byte
}

// throttler has the groups of the routes that throttle what one receiver gets. Its worker owns it.
//
// A group begins with a version that is delivered. Versions within the interval after it are not:
// the latest of them, with their number, is the summary, which is due when the interval ends, and
// begins another one. A group whose interval ends without a summary is removed. In a full throttler,
// the group that was used least lately, of the namespace with most, makes room, and its summary is
// due at once: a tenant who invents groups is throttled less, and loses nothing.
//
// A summary is never of a version that the worker has delivered. A reader returns versions in
// ascending order, so those of a group come after the one that it began with. Exempt are a list that
// had to begin anew, and an etcd that was restored, since they return versions again.
type throttler struct {
	groups *fairlru.Cache[groupKey, string, *group]
	ends   minheap.Heap[*group]
	due    []summary // of groups that were evicted, or ended before their interval did
}

type groupKey struct {
	route string
	group [sha256.Size]byte
}

// group is one group within its interval.
type group struct {
	minheap.Place
	key      groupKey
	interval time.Duration
	ends     time.Time
	// begun is the ID of the version that was delivered at the beginning.
	begun string
	// latest is that of the versions since, and n their number. It has no Event without any.
	latest observer.Version
	n      int
}

// Before implements minheap.Element. The group that ends next is first.
func (g *group) Before(other *group) bool { return g.ends.Before(other.ends) }

// summary is what a receiver gets instead of n versions.
type summary struct {
	latest observer.Version
	n      int
}

func newThrottler(limit int64) *throttler {
	t := &throttler{}
	t.groups = fairlru.New[groupKey, string](limit, func(_ groupKey, g *group) {
		t.ends.Remove(g)
		t.end(g)
	})
	return t
}

// end makes the summary of a group due, if it has one.
func (t *throttler) end(g *group) {
	if g.n > 0 {
		t.due = append(t.due, summary{g.latest, g.n})
	}
}

// throttle reports whether a version is left to a summary. first: it is the first of that summary.
func (t *throttler) throttle(route string, by Throttle, v observer.Version, now time.Time) (throttled, first bool) {
	key := groupKey{route, by.Group(v.Event)}
	g, ok := t.groups.Get(key)
	if !ok {
		g = &group{key: key, interval: by.Interval(), ends: now.Add(by.Interval()), begun: v.ID()}
		t.ends.Fix(g)
		t.groups.Add(key, v.Event.Namespace, g, groupBytes)
		return false, false
	}
	if v.ID() == g.begun { // read again, and the receiver has it
		return true, false
	}
	g.n++
	if first = g.n == 1; first || compareVersions(v.Event, g.latest.Event) > 0 {
		g.latest = v
		t.groups.Add(key, v.Event.Namespace, g, groupBytes+eventsize.Of(v.Event))
	}
	return true, first
}

// next returns when an interval ends, or a summary is due. It is zero without any group.
func (t *throttler) next() time.Time {
	switch {
	case len(t.due) > 0:
		return time.Unix(0, 0)
	case t.ends.Len() > 0:
		return t.ends.First().ends
	default:
		return time.Time{}
	}
}

// take returns the summaries that are due, in the order of their versions.
func (t *throttler) take(now time.Time) []summary {
	for g := t.ends.First(); g != nil && !g.ends.After(now); g = t.ends.First() {
		if g.n == 0 {
			t.ends.Remove(g)
			t.groups.Remove(g.key)
			continue
		}
		t.end(g)
		t.groups.Add(g.key, g.latest.Event.Namespace, g, groupBytes)
		g.begun, g.ends, g.latest, g.n = g.latest.ID(), now.Add(g.interval), observer.Version{}, 0
		t.ends.Fix(g)
	}
	due := t.due
	t.due = nil
	slices.SortFunc(due, func(a, b summary) int { return compareVersions(a.latest.Event, b.latest.Event) })
	return due
}

// endAll ends all groups. Their summaries are due.
func (t *throttler) endAll() {
	for g := t.ends.First(); g != nil; g = t.ends.First() {
		t.ends.Remove(g)
		t.groups.Remove(g.key)
		t.end(g)
	}
}

// compareVersions compares resource versions. Those that cannot be compared are equal.
func compareVersions(a, b *corev1.Event) int {
	order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
	if err != nil {
		return 0
	}
	return order
}
