package trail

import (
	"cmp"
	"slices"
	"time"

	"github.com/apache/datasketches-go/frequencies"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/observer"
)

// What a ranking is by: TopQuery.By.
const (
	ByObject    = "object"
	ByReason    = "reason"
	ByNamespace = "namespace"
	ByReporter  = "reporter"
)

var dimensionOf = map[string]dimension{ByObject: byObject, ByReason: byReason, ByNamespace: byNamespace, ByReporter: byReporter}

// MaxWindow is the highest TopQuery.Window, and the default.
const MaxWindow = (slots - 1) * slotTime

// TopQuery asks for the noisiest.
type TopQuery struct {
	Namespaces []string // nil: all
	By         string   // one of the constants, ByObject if it is none
	Window     time.Duration
	Limit      int
}

const (
	// What was counted is fed to the sketches at the latest after feedAfter, or if it is of maxUnfed series: so
	// repeats cost one addition.
	feedAfter = time.Second
	maxUnfed  = 256
)

// feedLater has counts of a series fed to the sketches. The mutex must be held.
func (t *Trail) feedLater(s *series, c counts, now time.Time) {
	if c == (counts{}) {
		return
	}
	if s.unfed == (counts{}) {
		t.unfed = append(t.unfed, s)
	}
	s.unfed.add(c)
	if len(t.unfed) >= maxUnfed || now.Sub(t.fed) >= feedAfter {
		t.feed(now)
	}
}

// feed feeds what was counted to the sketches. The mutex must be held.
func (t *Trail) feed(now time.Time) {
	for _, s := range t.unfed {
		t.rank(s.subject, s.unfed, now)
		s.unfed = counts{}
	}
	clear(t.unfed)
	t.unfed, t.fed = t.unfed[:0], now
}

// rank adds counts to the sketches. The mutex must be held.
func (t *Trail) rank(of *subject, c counts, now time.Time) {
	t.all.add(of, c, now)
	b, ok := t.ranked.Get(of.namespace)
	before := int64(0)
	if ok {
		before = b.bytes
	} else {
		b = &board{one: true, known: t.unranked, bytes: boardBytes}
	}
	b.lgKeys = t.lgNamespaceKeys(before, now)
	if b.add(of, c, now); b.bytes != before {
		t.live += b.bytes - before
		t.ranked.Add(of.namespace, struct{}{}, b, b.bytes)
	}
}

// lgNamespaceKeys returns the size of the next sketches of a namespace, whose board has so many bytes: they have half
// of what the boards of the last minutes leave, so that few namespaces have large ones. The mutex must be held.
func (t *Trail) lgNamespaceKeys(own int64, now time.Time) int {
	if now.Sub(t.counted) >= slotTime {
		t.counted, t.live = now, 0
		for _, b := range t.ranked.Values() {
			if now.Sub(b.last) < MaxWindow+slotTime {
				t.live += b.bytes
			}
		}
	}
	free := t.boards - (t.live - own)
	return min(max(lgKeys(free/2, int64(dimensions)-2), minNamespaceKeys), maxNamespaceKeys)
}

// boardEvicted is called for the board of a namespace where nothing has happened for longest. The mutex is held.
func (t *Trail) boardEvicted(_ string, b *board) {
	if b.last.After(t.unranked) {
		t.unranked = b.last
	}
}

// Observed counts a version of an Event that others have written: as a write, and what it adds to its count as
// occurrences. Versions that eventd has written do not count if their occurrences were recorded here. Otherwise all but
// one of the occurrences of each were saved.
func (t *Trail) Observed(v observer.Version) {
	written := v.Event.Annotations[identity.Annotation] != ""
	if written && !t.unreported {
		return
	}
	k := keyOf(v.Event, "")
	l := labelsOf(v.Event, "")
	t.mu.Lock()
	defer t.mu.Unlock()
	k, l = k.clone(), l.clone()
	counted := counts{occurrences: max(0, t.observed.Of(v.Event)), writes: 1}
	if written {
		counted.saved = max(0, counted.occurrences-1)
	}
	t.rank(t.hash.subject(&k, l.reason, l.reporter), counted, time.Now())
}

// ranking adds up sketches.
type ranking struct {
	by     dimension
	total  counts
	merged *sketch // of all slots
	items  []ranked
}

type ranked struct {
	subject *subject
	counts
	error int64
}

// lgMerged is for all keys of all boards: nothing is purged. A sketch grows only as it is filled.
const lgMerged = 20

func (r *ranking) addSlot(s *slot) {
	r.total.add(s.total)
	from := s.sketches[r.by]
	if from == nil {
		return
	}
	if r.merged == nil {
		r.merged = newSketch(lgMerged)
	}
	for key, l := range from.labels {
		at := r.merged.labels[key]
		if at == nil {
			at = &label{subject: l.subject}
			r.merged.labels[key] = at
		}
		at.writes += l.writes
		at.saved += l.saved
	}
	if _, err := r.merged.items.Merge(from.items); err != nil {
		panic(err) // its counts are not negative
	}
}

// addNamespace adds a slot of the board of one namespace, whose counts are exact.
func (r *ranking) addNamespace(name string, s *slot) {
	r.total.add(s.total)
	if n := len(r.items); n == 0 || r.items[n-1].subject.namespace != name {
		r.items = append(r.items, ranked{subject: &subject{namespace: name}})
	}
	r.items[len(r.items)-1].add(s.total)
}

// Top returns the noisiest of the last minutes, except for keys whose error is not below what is known of them. With
// namespaces, it is of sketches that are of one namespace each.
func (t *Trail) Top(q TopQuery) Top {
	by, ok := dimensionOf[q.By]
	if !ok {
		q.By, by = ByObject, byObject
	}
	if q.Window <= 0 || q.Window > MaxWindow {
		q.Window = MaxWindow
	}
	now := time.Now()
	r := ranking{by: by}
	since := t.rankWithin(&r, q, now)
	top := Top{
		Since: since, Until: now,
		By: q.By, Occurrences: r.total.occurrences, Items: []TopItem{},
	}
	for _, at := range r.sorted(q.Limit) {
		top.Items = append(top.Items, at.topItem(by))
	}
	return top
}

// rankWithin adds what a query asks for, and returns since when that is known.
func (t *Trail) rankWithin(r *ranking, q TopQuery, now time.Time) (since time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.feed(now)
	since = now.Add(-q.Window).Truncate(slotTime)
	if t.began.After(since) {
		since = t.began
	}
	if q.Namespaces == nil {
		t.all.within(now, q.Window, r.addSlot)
		return since
	}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(q.Namespaces))) {
		known := t.unranked
		if b, ok := t.ranked.Peek(name); ok {
			known = b.known
			b.within(now, q.Window, func(s *slot) {
				if r.by == byNamespace {
					r.addNamespace(name, s)
				} else {
					r.addSlot(s)
				}
			})
		}
		if known.After(since) {
			since = known
		}
	}
	return since
}

// sorted returns the noisiest items first.
func (r *ranking) sorted(limit int) []ranked {
	if r.merged != nil {
		rows, err := r.merged.items.GetFrequentItemsWithThreshold(r.merged.items.GetMaximumError()+1, frequencies.ErrorTypeEnum.NoFalsePositives)
		if err != nil {
			panic(err) // it reads what it has
		}
		for _, row := range rows {
			l := r.merged.labels[row.GetItem()] // a key of a sketch has a label
			r.items = append(r.items, ranked{
				subject: l.subject, error: row.GetUpperBound() - row.GetLowerBound(),
				counts: counts{row.GetLowerBound(), l.writes, l.saved},
			})
		}
	}
	slices.SortFunc(r.items, func(x, y ranked) int {
		return cmp.Or(cmp.Compare(y.occurrences, x.occurrences), cmp.Compare(y.writes, x.writes),
			cmp.Compare(x.subject.text(r.by), y.subject.text(r.by)))
	})
	return r.items[:min(len(r.items), limited(limit))]
}

func (at *ranked) topItem(by dimension) TopItem {
	item := TopItem{Occurrences: at.occurrences, Error: at.error, Writes: at.writes, Saved: at.saved}
	switch s := at.subject; by {
	case byReason:
		item.Reason = valid(s.reason)
	case byReporter:
		item.Reporter = valid(s.reporter)
	case byNamespace:
		item.Namespace = valid(s.namespace)
	default:
		item.Object = new(reference(s.object))
	}
	return item
}
