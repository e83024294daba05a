package history

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eventd/eventd/internal/eventfields"
	"github.com/eventd/eventd/internal/shares"
	"github.com/eventd/eventd/pkg/observer"
)

const (
	// DefaultLimit and MaxLimit are those of Query.Limit.
	DefaultLimit = 500
	MaxLimit     = 5000
	// maxResultBytes bounds the versions of a result, in bytes of memory, and pruneBytes what is found
	// before the older ones are left out.
	maxResultBytes, pruneBytes = 3 << 20, 4 << 20
)

// Object is what Events are about. Empty fields match all.
type Object struct {
	// Group is the API group, eventfields.CoreGroup for that of Pods. An Event that does not say it matches each.
	Group, Kind, Namespace, Name string
	UID                          types.UID
}

// Query selects versions. Empty fields match all.
type Query struct {
	// Namespaces are those of the Events. Nil are all; an empty list is none.
	Namespaces []string
	Object     Object
	// Reporter is the reporting controller or, without one, the component of the source.
	Reason, Type, Reporter string
	// Since and Until limit the time of the Event in a version: when what it is about has happened last.
	Since, Until time.Time
	// AllVersions: not only the last of each Event that matches, in the order of the result.
	AllVersions bool
	// Caller is the user whose time and memory the query takes. Tenants have equal parts, and users of a tenant have parts of these.
	Caller string
	// Limit is the maximum number of versions: DefaultLimit if it is 0, and at most MaxLimit.
	Limit int
}

// Result is the answer to a query. It belongs to its caller, who must release it.
type Result struct {
	// Versions are the newest Limit that match, oldest first: in the order of the times of their Events, and
	// of resourceVersions. They are shared, and nobody changes them.
	Versions []observer.Version
	// KnownSince: what was observed in the namespaces of the query since then is in the history. It is
	// zero before anything was observed.
	KnownSince time.Time
	// ResourceVersion is what the result is complete up to, from which Follow goes on. It is empty
	// before the first list is complete.
	ResourceVersion string
	// Truncated: older versions match too, or the versions would take more than 3 MiB.
	Truncated bool

	memory *reservation
}

// Release frees the memory that is reserved for the versions, which are not used after that.
func (r Result) Release() { r.memory.release() }

// List returns what matches a query. It decodes one block at a time, when it is the turn of its tenant, and
// ends with an error soon after ctx does. The error is ErrBusy if the results of its tenant take too much
// memory. With an error, there is nothing to release.
func (h *History) List(ctx context.Context, q Query) (Result, error) {
	snapshot := h.snapshot(q.Namespaces)
	s := newSearch(h.codec, q)
	s.memory = &reservation{of: h.budget.results, flow: shares.FlowOf(q.Caller, "")}
	turn := func(work func() error) error { return h.budget.decode(ctx, shares.FlowOf(q.Caller, ""), work) }
	err := turn(func() error {
		s.head(snapshot.head)
		return nil
	})
	if err == nil {
		err = s.sealed(snapshot.blocks, func(b *block) error { return turn(func() error { return s.block(b) }) })
	}
	if err != nil {
		s.memory.release()
		return Result{}, err
	}
	result := Result{KnownSince: snapshot.knownSince, ResourceVersion: snapshot.resourceVersion, memory: s.memory}
	result.Versions, result.Truncated = s.result()
	s.memory.shrink(s.bytes)
	return result, nil
}

// search is a query that runs.
type search struct {
	c     *codec
	q     Query
	limit int // one more than that of the query
	// object is the hash of the name, and facets and namespaces are those of what a block must have.
	object     uint32
	facets     []uint32
	namespaces []uint32
	// since and until are in microseconds since 1970; 0 is no limit.
	since, until int64

	// found are the newest versions so far, by Event or by version.
	found map[foundKey]found
	bytes int64
	// memory is reserved for them. There was no more if busy.
	memory *reservation
	busy   bool
	// oldest is the rank below which nothing is searched, as enough is found.
	oldest    rank
	truncated bool
}

// foundKey identifies an Event, or a version if at is not zero.
type foundKey struct {
	uid types.UID
	at  position
}

type found struct {
	observer.Version
	rank
	bytes int64
}

func newSearch(c *codec, q Query) *search {
	s := &search{c: c, q: q, found: make(map[foundKey]found), oldest: rank{time: math.MinInt64}}
	if s.limit = q.Limit + 1; q.Limit <= 0 {
		s.limit = DefaultLimit + 1
	}
	s.limit = min(s.limit, MaxLimit+1)
	s.object = c.hash(facetObject, q.Object.Name)
	for of, value := range map[int]string{
		facetReason: q.Reason, facetType: q.Type, facetReporter: q.Reporter, facetObject: q.Object.Name, facetObjectUID: string(q.Object.UID),
	} {
		if value != "" {
			s.facets = append(s.facets, c.hash(of, value))
		}
	}
	for _, namespace := range q.Namespaces {
		s.namespaces = append(s.namespaces, c.hash(facetNamespace, namespace))
	}
	if !q.Since.IsZero() {
		s.since = q.Since.UnixMicro()
	}
	if !q.Until.IsZero() {
		s.until = q.Until.UnixMicro()
	}
	return s
}

func (s *search) inTime(time int64) bool {
	return (s.since == 0 || time >= s.since) && (s.until == 0 || time <= s.until)
}

// wanted is false if a version is not needed, as there are enough later ones, or a later one of the same
// Event. One that was observed again, in another list, is later.
func (s *search) wanted(r *row, at rank) bool {
	if at.before(s.oldest) {
		return false
	}
	had, ok := s.found[s.keyOf(r.Event.UID, at.at)]
	return !ok || had.rank.before(at) || had.rank == at && had.Observed.Before(r.Observed)
}

func (s *search) keyOf(uid types.UID, at position) foundKey {
	if s.q.AllVersions {
		return foundKey{uid, at}
	}
	return foundKey{uid: uid}
}

// row adds a version that matches and is wanted.
func (s *search) row(r *row) {
	at := rank{r.time(), position{r.epoch, r.rv}}
	if !s.inTime(at.time) || !s.matches(r.Event) || !s.wanted(r, at) {
		return
	}
	k := s.keyOf(r.Event.UID, at.at)
	s.bytes += r.bytes - s.found[k].bytes
	s.found[k] = found{r.Version, at, r.bytes}
	if len(s.found) >= 2*s.limit || s.bytes >= pruneBytes {
		s.prune()
	}
	s.busy = s.busy || !s.memory.grow(s.bytes)
}

// prune leaves the newest versions, as many as are needed.
func (s *search) prune() {
	if len(s.found) < s.limit && s.bytes <= maxResultBytes {
		return
	}
	sorted := s.sorted()
	kept, bytes := 0, int64(0)
	for kept < min(len(sorted), s.limit) && (kept == 0 || bytes+sorted[kept].bytes <= maxResultBytes) {
		bytes += sorted[kept].bytes
		kept++
	}
	s.truncated = s.truncated || kept < min(len(sorted), s.limit)
	for _, f := range sorted[kept:] {
		delete(s.found, s.keyOf(f.Event.UID, f.at))
	}
	s.bytes, s.oldest = bytes, sorted[kept-1].rank
}

// sorted returns what is found, newest first.
func (s *search) sorted() []found {
	sorted := make([]found, 0, len(s.found))
	for _, f := range s.found {
		sorted = append(sorted, f)
	}
	slices.SortFunc(sorted, func(a, b found) int {
		return cmp.Or(compareRanks(b.rank, a.rank), cmp.Compare(a.Event.UID, b.Event.UID))
	})
	return sorted
}

func (s *search) result() (versions []observer.Version, truncated bool) {
	s.prune()
	sorted := s.sorted()
	if len(sorted) == s.limit {
		sorted, s.truncated = sorted[:s.limit-1], true
	}
	for _, f := range slices.Backward(sorted) {
		versions = append(versions, f.Version)
	}
	return versions, s.truncated
}

// head searches the head.
func (s *search) head(rows []row) {
	for i := range slices.Backward(rows) {
		s.row(&rows[i])
	}
}

// block searches a block.
func (s *search) block(b *block) error {
	named := func(_ int64, object uint32) bool { return s.q.Object.Name == "" || object == s.object }
	return s.c.decode(b, named, s.row)
}

// matches reports whether all but times do.
func (s *search) matches(e *corev1.Event) bool {
	q, o := &s.q, &e.InvolvedObject
	return (q.Namespaces == nil || slices.Contains(q.Namespaces, e.Namespace)) &&
		sameGroup(q.Object.Group, o.APIVersion) && equalOrEmpty(q.Object.Kind, o.Kind) && equalOrEmpty(q.Object.Namespace, o.Namespace) && equalOrEmpty(q.Object.Name, o.Name) &&
		equalOrEmpty(string(q.Object.UID), string(o.UID)) &&
		equalOrEmpty(q.Reason, e.Reason) && equalOrEmpty(q.Type, e.Type) && equalOrEmpty(q.Reporter, eventfields.Reporter(e))
}

// sameGroup reports whether an object with an apiVersion may be in a group.
func sameGroup(want, apiVersion string) bool {
	got := eventfields.Group(apiVersion)
	return want == "" || got == "" || got == want
}

func equalOrEmpty(want, got string) bool { return want == "" || want == got }

// last is a rank that no version of the block is above.
func (b *block) last() rank { return rank{b.lastTime, position{b.epoch, b.lastRV}} }

// sealed searches blocks, those with the newest versions first.
func (s *search) sealed(blocks []*block, search func(*block) error) error {
	blocks = slices.DeleteFunc(blocks, func(b *block) bool { return !s.mayMatch(b) })
	slices.SortFunc(blocks, func(a, b *block) int {
		return compareRanks(b.last(), a.last())
	})
	for _, b := range blocks {
		if s.busy {
			return ErrBusy
		}
		if s.prune(); b.last().before(s.oldest) {
			break
		}
		if err := search(b); err != nil {
			return err
		}
	}
	if s.busy {
		return ErrBusy
	}
	return nil
}

// mayMatch is false if no version in a block matches, as its index shows.
func (s *search) mayMatch(b *block) bool {
	if s.since != 0 && b.lastTime < s.since || s.until != 0 && b.firstTime > s.until || !s.mayMatchNamespace(b) {
		return false
	}
	for _, facet := range s.facets {
		if !b.mayHave(facet) {
			return false
		}
	}
	return true
}

func (s *search) mayMatchNamespace(b *block) bool {
	if s.q.Namespaces == nil {
		return true
	}
	for i, namespace := range s.q.Namespaces {
		if b.firstNamespace <= namespace && namespace <= b.lastNamespace && b.mayHave(s.namespaces[i]) {
			return true
		}
	}
	return false
}
