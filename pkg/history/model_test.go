package history

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eventd/eventd/internal/eventfields"
	"github.com/eventd/eventd/pkg/observer"
	"github.com/eventd/eventd/test/seeds"
)

// model is a history as a slice.
type model struct {
	rng     *rand.Rand
	h       *History
	all     []row
	next    uint64
	now     time.Time
	epoch   int64
	listing bool
	used    map[position]bool
}

func newModel(t *testing.T, seed uint64, maxBytes int64) *model {
	h := newForTest(t, maxBytes, smallSizes)
	h.begin()
	return &model{rng: rand.New(rand.NewPCG(seed, 9)), h: h, listing: true, next: 100, used: make(map[position]bool), now: time.UnixMicro(1_790_000_000_000_000)}
}

func pick[T any](rng *rand.Rand, of ...T) T { return of[rng.IntN(len(of))] }

func (m *model) event() *corev1.Event {
	uid := types.UID(pick(m.rng, fmt.Sprintf("5e0c1a52-7d0a-4c58-8b43-%012d", m.rng.IntN(40)), fmt.Sprint("odd", m.rng.IntN(10))))
	namespace := pick(m.rng, "a", "b", "b", "c", "c", "c", "c", "c")
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "e" + string(uid), UID: uid},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: pick(m.rng, "", "v1", "batch/v1", "batch/v1beta1"), Kind: pick(m.rng, "Pod", "Job"), Namespace: pick(m.rng, namespace, ""), Name: fmt.Sprint("o", m.rng.IntN(6)),
			UID: types.UID(pick(m.rng, "", "odd", fmt.Sprintf("6e0c1a52-7d0a-4c58-8b43-%012d", m.rng.IntN(4)))),
		},
		Reason: pick(m.rng, "R1", "R2", "R3"), Type: pick(m.rng, "Normal", "Warning"),
		ReportingController: pick(m.rng, "", "kubelet"), Source: corev1.EventSource{Component: pick(m.rng, "kubelet", "scheduler")},
		Message: fmt.Sprint("message ", m.rng.IntN(50)), Count: int32(m.rng.IntN(9)),
		LastTimestamp: metav1.Time{Time: m.time()}, FirstTimestamp: metav1.Time{Time: m.time()}, EventTime: metav1.MicroTime{Time: m.time()},
		Series: pick(m.rng, nil, &corev1.EventSeries{LastObservedTime: metav1.MicroTime{Time: m.time()}}),
	}
}

// time is none, or that of an Event that is observed late, or whose reporter has another clock.
func (m *model) time() time.Time {
	return pick(m.rng, time.Time{}, m.now.Add(time.Duration(m.rng.IntN(2000)-1900)*time.Microsecond))
}

// timeOf is when what an Event is about has happened last.
func (r *row) timeOf() time.Time {
	if at := eventfields.LastTime(r.Event); !at.IsZero() && at.Before(r.Observed) {
		return at
	}
	return r.Observed
}

// step adds a batch, as a reader of an observer returns it.
func (m *model) step() {
	var b observer.Batch
	switch m.rng.IntN(20) {
	case 0:
		b.Gap, m.listing = true, true
	case 1:
		if m.rng.IntN(3) == 0 {
			b.Restored, m.listing = true, true
			m.epoch++
			m.next -= m.next / 3
		}
	}
	for range m.rng.IntN(12) {
		m.now = m.now.Add(time.Duration(m.rng.IntN(1000)) * time.Microsecond)
		e := m.event()
		m.next += 1 + uint64(m.rng.IntN(3))
		rv := m.next
		if n := len(m.all); m.listing && n > 0 && m.rng.IntN(4) == 0 && m.all[n-1].epoch == m.epoch { // again
			e, rv = m.all[n-1].Event.DeepCopy(), m.all[n-1].rv
		} else if m.listing {
			rv -= min(rv, uint64(m.rng.IntN(50)))
			for m.used[position{m.epoch, rv}] {
				rv++
			}
			m.next = max(m.next, rv)
		}
		m.used[position{m.epoch, rv}] = true
		e.ResourceVersion = formatRV(rv)
		entry := observer.Entry{Version: observer.Version{Event: e, Observed: m.now}}
		if !m.listing {
			entry.Cursor = m.cursor()
		}
		b.Entries = append(b.Entries, entry)
		r, _ := newRow(entry.Version, m.listing)
		r.epoch = m.epoch
		m.all = append(m.all, r)
	}
	if m.listing && m.rng.IntN(3) == 0 {
		m.listing = false
		if n := len(b.Entries); n > 0 {
			b.Entries[n-1].Cursor = m.cursor()
		}
		b.Cursor = m.cursor()
	}
	m.h.addBatch(b)
}

func (m *model) cursor() observer.Cursor {
	return observer.Cursor{Epoch: m.epoch, ResourceVersion: strconv.FormatUint(m.next, 10)}
}

func (m *model) query() Query {
	q := Query{AllVersions: m.rng.IntN(2) == 0, Limit: pick(m.rng, 0, 1, 3, 20, 5000)}
	some := func() bool { return m.rng.IntN(4) == 0 }
	e := m.event()
	if some() {
		q.Namespaces = pick(m.rng, []string{}, []string{"a"}, []string{"a", "c"}, []string{"none"})
	}
	if some() {
		q.Object.Name = e.InvolvedObject.Name
	}
	if some() {
		q.Object.Kind, q.Object.Namespace = e.InvolvedObject.Kind, e.InvolvedObject.Namespace
	}
	if some() {
		q.Object.Group = pick(m.rng, "core", "batch", "apps")
	}
	if some() {
		q.Object.UID = e.InvolvedObject.UID
	}
	if some() {
		q.Reason, q.Type = e.Reason, e.Type
	}
	if some() {
		q.Reporter = e.Source.Component
	}
	if n := len(m.all); n > 0 && some() {
		q.Since = m.all[m.rng.IntN(n)].timeOf()
	}
	if n := len(m.all); n > 0 && some() {
		q.Until = m.all[m.rng.IntN(n)].timeOf()
	}
	return q
}

// list is List, of what was observed since a time.
func (m *model) list(q Query, since time.Time) (want []row, truncated bool) {
	type key struct {
		uid types.UID
		at  position
	}
	found := make(map[key]row)
	s := newSearch(m.h.codec, q)
	for _, r := range m.all {
		if !s.matches(r.Event) || !s.inTime(r.timeOf().UnixMicro()) || r.Observed.Before(since) {
			continue
		}
		k := key{uid: r.Event.UID}
		if q.AllVersions {
			k.at = position{r.epoch, r.rv}
		}
		if had, ok := found[k]; !ok || compareTimes(had, r) <= 0 {
			found[k] = r
		}
	}
	for _, r := range found {
		want = append(want, r)
	}
	slices.SortFunc(want, compareTimes)
	limit := q.Limit
	if limit == 0 {
		limit = DefaultLimit
	}
	if truncated = len(want) > limit; truncated {
		want = want[len(want)-limit:]
	}
	return want, truncated
}

// compareTimes is the order of a result.
func compareTimes(a, b row) int {
	return cmp.Or(a.timeOf().Compare(b.timeOf()), cmp.Compare(a.epoch, b.epoch), cmp.Compare(a.rv, b.rv), cmp.Compare(b.Event.UID, a.Event.UID))
}

func ids(versions []observer.Version) (ids []string) {
	for _, v := range versions {
		ids = append(ids, v.ID()+" "+v.Event.Message)
	}
	return ids
}

func idsOfRows(rows []row) (ids []string) {
	for _, r := range rows {
		ids = append(ids, r.ID()+" "+r.Event.Message)
	}
	return ids
}

// Random histories, with lists, gaps and restores, answer as a slice does.
func TestQueriesAnswerAsASliceDoes(t *testing.T) {
	for seed := range seeds.Of(20) {
		m := newModel(t, seed, 64<<20)
		matched := 0
		for range 60 {
			m.step()
			if m.rng.IntN(2) == 0 {
				waitSealed(m.h)
			}
			q := m.query()
			got, err := m.h.List(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			want, truncated := m.list(q, time.Time{})
			if !slices.Equal(ids(got.Versions), idsOfRows(want)) || got.Truncated != truncated {
				t.Fatalf("seed %d: %+v returns %d (truncated: %v), want %d (%v)\n%v\n%v", seed, q, len(got.Versions), got.Truncated, len(want), truncated, ids(got.Versions), idsOfRows(want))
			}
			matched += len(want)
			got.Release()
		}
		waitSealed(m.h)
		if matched == 0 || len(m.h.store.blocks) == 0 {
			t.Fatalf("seed %d: %d versions matched, %d blocks", seed, matched, len(m.h.store.blocks))
		}
	}
}

// What is removed is older than KnownSince, and all else is there.
func TestAFullHistoryHasAllSinceItsKnownSince(t *testing.T) {
	for seed := range seeds.Of(5) {
		const maxBytes = 100_000
		m := newModel(t, seed, maxBytes)
		for range 150 {
			m.step()
			if m.rng.IntN(4) != 0 {
				waitSealed(m.h)
			}
			if s := m.h.Status(); s.Bytes > maxBytes {
				t.Fatalf("seed %d: %d bytes of %d", seed, s.Bytes, maxBytes)
			}
			namespace := pick(m.rng, "a", "b", "c")
			q := Query{AllVersions: true, Namespaces: pick(m.rng, nil, []string{namespace}), Limit: MaxLimit}
			got, err := m.h.List(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			got.Release()
			since := slices.DeleteFunc(got.Versions, func(v observer.Version) bool { return v.Observed.Before(got.KnownSince) })
			if want, _ := m.list(q, got.KnownSince); !slices.Equal(ids(since), idsOfRows(want)) {
				t.Fatalf("seed %d: since %v, %d versions, want %d", seed, got.KnownSince, len(since), len(want))
			}
		}
		waitSealed(m.h)
		if m.h.store.lost == 0 {
			t.Fatalf("seed %d: nothing was removed", seed)
		}
	}
}
