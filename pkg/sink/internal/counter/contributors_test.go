package counter

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/test/seeds"
	"github.com/eventd/eventd/test/sinktest"
)

const (
	sinkA = "aaaaaaaaaaaaaaaa"
	sinkB = "bbbbbbbbbbbbbbbb"
)

// numbered returns a contributor for a test.
func numbered(i int) Contributor { return Contributor([]byte(fmt.Sprintf("%016d", i))) }

func TestSharesFormat(t *testing.T) {
	s := contributors{
		sinks:   []contribution{{Contributor([]byte(sinkA)), 12}, {Contributor([]byte(sinkB)), 18446744073709551615}},
		clients: []contribution{{clientKey("web-0.17a2"), 3}},
	}
	want := "v1;s=aaaaaaaaaaaaaaaa:12,bbbbbbbbbbbbbbbb:18446744073709551615;n=7noj8sa1j8jf0c4c:3"
	if got := s.String(); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := clientKey("web-0.17a2").String(); got != "7noj8sa1j8jf0c4c" {
		t.Errorf("client key %q has changed: it is part of what is stored", got)
	}
	got := NewInstance()
	if parsed, err := parseContributor(got.String()); err != nil || parsed != got || got == NewInstance() {
		t.Errorf("instance %q: %v", got, err)
	}
}

// Later instances are greater, so that those that are forgotten are the oldest.
func TestInstancesAreInOrderOfTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all []Contributor
		for range 100 {
			all = append(all, NewInstance())
			time.Sleep(300 * time.Millisecond)
		}
		if !slices.IsSortedFunc(all, Contributor.compare) {
			t.Errorf("%s", all)
		}
	})
}

func TestWhatDoesNotParseIsForeign(t *testing.T) {
	for _, annotation := range []string{
		"", "v2;s=" + sinkA + ":1", "v1;s", "v1;s=", "v1;s=short:1", "v1;s=" + sinkA, "v1;s=" + sinkA + ":",
		"v1;s=" + sinkA + ":-1", "v1;s=" + sinkA + ":+1", "v1;s=" + sinkA + ":01", "v1;s=" + sinkA + ":18446744073709551616",
		"v1;s=" + sinkA + ":1," + sinkA + ":2", "v1;s=" + sinkA + ":1;s=" + sinkB + ":1", "v1;s=" + strings.ToUpper(sinkA) + ":1",
		"v1;x=1;x=2", "v1;o=short", "v1;o=" + sinkA + ":1", "v1;o=" + sinkA + ",", "v1;n=" + sinkA + ":1,", "v1;x=" + strings.Repeat("x", maxUnknown),
	} {
		if s, err := parseContributors(annotation); err == nil {
			t.Errorf("%q parsed to %+v", annotation, s)
		}
	}
}

// More contributors than are kept are those of another release: the oldest go, as
// with the next write.
func TestListsOfOthersAreCut(t *testing.T) {
	s, err := parseContributors(manyClients(maxClients + 2))
	if err != nil || len(s.clients) != maxClients || s.clients[0].contributor != numbered(2) {
		t.Errorf("%d clients, %v", len(s.clients), err)
	}
}

func TestUnknownPartsSurvive(t *testing.T) {
	const unknown = ";later=something:else,and more"
	check(t, scenario{
		steps: []step{adds, settles, changes(func(e *corev1.Event) { e.Annotations[Annotation] += unknown }), adds, settles},
		ends:  []string{"created", "merged"}, counted: 2, events: 1,
		then: func(t *testing.T, w *world) {
			for _, e := range w.server.Objects {
				if got := e.Annotations[Annotation]; !strings.HasSuffix(got, unknown) {
					t.Errorf("got %q", got)
				}
			}
		},
	})
}

func FuzzShares(f *testing.F) {
	f.Add("v1")
	f.Add("v1;s=" + sinkA + ":1;n=" + sinkB + ":2;z=3")
	f.Fuzz(func(t *testing.T, annotation string) {
		s, err := parseContributors(annotation)
		if err != nil {
			return
		}
		again, err := parseContributors(s.String())
		if err != nil || !reflect.DeepEqual(s, again) {
			t.Errorf("%q reads as %+v, written %q reads as %+v: %v", annotation, s, s.String(), again, err)
		}
	})
}

// FuzzObserve reads anything from a stored Event: what is not of this series is
// not marked as its Event, and what is read is written again as it was.
func FuzzObserve(f *testing.F) {
	own := occurrence.Digest(identity.Of(sinktest.Event(false))).String()
	f.Add(own, "v1;s="+sinkA+":1;n="+sinkB+":2", int32(3), true)
	f.Add(own, "v1;s="+sinkA+":18446744073709551615", int32(-1), false)
	f.Add("", "", int32(0), false)
	f.Add("of another", "v1;s="+sinkA+":1", int32(1), false)
	f.Fuzz(func(t *testing.T, digest, annotation string, count int32, series bool) {
		event := sinktest.Event(false)
		a := &Counter{digest: identity.Of(event)}
		event.Count = count
		if series {
			event.Series = &corev1.EventSeries{Count: count}
		}
		event.Annotations = map[string]string{identity.Annotation: digest, Annotation: annotation}
		o, marked := a.observe(event)
		parsed, err := parseContributors(annotation)
		if marked != (digest == own && err == nil) {
			t.Errorf("marked is %t: %q, %v", marked, digest, err)
		}
		if marked && o.contributors.String() != parsed.String() {
			t.Errorf("%q is read as %q", annotation, o.contributors)
		}
	})
}

func TestAnnotationStaysSmall(t *testing.T) {
	var s contributors
	for i := range 100 {
		s.sinks = set(s.sinks, numbered(i), 1<<63, maxSinks)
		s.clients = set(s.clients, numbered(i), 1<<63, maxClients)
	}
	if n := len(s.String()); n > 2800 {
		t.Errorf("%d bytes", n)
	}
}

// What shares an entry is planned as if each had one of its own, whatever others
// have counted before.
func TestSharedEntryIsPlannedAsManyAre(t *testing.T) {
	for seed := range seeds.Of(2000) {
		rng := rand.New(rand.NewPCG(seed, 0))
		clients := 1 + rng.IntN(2*maxClients)
		client := func() string { return fmt.Sprint("client-", rng.IntN(clients)) }
		base := &observation{meta: &corev1.Event{}, count: 1000}
		for range rng.IntN(maxClients) {
			base.contributors.clients = set(base.contributors.clients, clientKey(client()), uint64(rng.IntN(20)), maxClients)
		}
		together, apart := newWriter(t, occurrence.Digest{}), newWriter(t, occurrence.Digest{})
		apart.instance = together.instance
		for _, w := range []*writer{together, apart} {
			w.counter.observed, w.counter.instance = base, together.instance
		}
		for range rng.IntN(100) {
			o := occurrence.Occurrence{Weight: rng.Int64N(4)}
			if rng.IntN(4) > 0 {
				o.Client, o.Total = client(), o.Weight+rng.Int64N(12)
			}
			for range 1 + rng.IntN(3) { // raised, or a gap left
				one, other := o, o
				other.Settled = func(occurrence.Settlement) {}
				together.add(&one, sinktest.Event(false))
				apart.addAt(together.sequence, &other, sinktest.Event(false))
				o.Total += rng.Int64N(3)
			}
		}
		a, b := together.counter.plan(together.counter.batch()), apart.counter.plan(apart.counter.batch())
		if a.added != b.added || a.count != b.count || a.contributors.String() != b.contributors.String() {
			t.Fatalf("seed %d: together %d are added and\n%s, apart %d and\n%s", seed, a.added, a.contributors, b.added, b.contributors)
		}
		if n := len(together.counter.pending); n > 1 || together.counter.weight() != apart.counter.weight() {
			t.Fatalf("seed %d: %d entries of weight %d, want %d", seed, n, together.counter.weight(), apart.counter.weight())
		}
	}
}

// What shares an entry changes the Event as it would one after the other.
func TestSharedEntryKeepsWhatWasSaidLast(t *testing.T) {
	said := func(weight int64, labels, annotations map[string]string, combined bool) Entry {
		event := sinktest.Event(false)
		event.Labels, event.Annotations = labels, annotations
		e, _ := NewEntry(&occurrence.Occurrence{Event: event, Weight: weight}, &occurrence.Target{Event: event, Combined: combined})
		return e
	}
	a, b := map[string]string{"said": "first"}, map[string]string{"said": "last"}
	e := said(0, a, a, true)
	oldest := e.Oldest
	for i, next := range []Entry{said(2, b, nil, true), said(1, nil, b, false), said(1, nil, nil, false)} {
		next.Acknowledged = i == 0
		e.merge(&next)
	}
	if e.labels["said"] != "last" || e.annotations["said"] != "last" {
		t.Errorf("labels %v and annotations %v", e.labels, e.annotations)
	}
	if plain := said(1, nil, nil, false); plain.changes {
		t.Error("it only adds to the count")
	} else if plain.merge(ptr.To(said(0, a, nil, false))); !plain.changes {
		t.Error("a change is forgotten")
	}
	c := map[string]string{"besides": "this"}
	e.merge(ptr.To(said(0, c, c, false)))
	if want := map[string]string{"said": "last", "besides": "this"}; !maps.Equal(e.labels, want) || !maps.Equal(e.annotations, want) || len(b) != 1 || len(c) != 1 {
		t.Errorf("labels %v and annotations %v", e.labels, e.annotations)
	}
	huge := map[string]string{"huge": strings.Repeat("x", maxAnnotations)}
	if e.merge(ptr.To(said(0, nil, huge, false))); !maps.Equal(e.annotations, huge) {
		t.Errorf("%d annotations that no Event could have", len(e.annotations))
	}
	if e.Weight != 4 || e.anonymous != 4 || !e.changes || !e.Acknowledged || e.Merged != occurrence.Merged || e.Oldest != oldest || e.Newest == oldest {
		t.Errorf("entry %+v", e)
	}
}

func TestOccurrencesNobodyWaitsForAreOneEntry(t *testing.T) {
	w := scenario{}.play(t)
	// report adds n occurrences, of which half are those of clients, and returns the number of entries.
	report := func(n int) int {
		for i := range n {
			o := &occurrence.Occurrence{Weight: 1}
			if i%2 == 0 {
				o.Client, o.Total = fmt.Sprint("client-", w.ours.sequence), 1
			}
			w.ours.add(o, w.event)
		}
		return len(w.ours.counter.pending)
	}
	entries := []int{report(1000)}
	begins(w)
	entries = append(entries, report(2)) // while a write carries the others
	adds(w)                              // awaited
	entries = append(entries, report(1))
	if !slices.Equal(entries, []int{1, 2, 4}) {
		t.Errorf("there are %v entries", entries)
	}
	settles(w)
	if written, _ := w.check(); written != 1004 || w.server.Counted() != 1004 {
		t.Errorf("written %d, counted %d", written, w.server.Counted())
	}
}

func TestUsualEventIsCountedAsOneToTwoKilobytes(t *testing.T) {
	w := scenario{}.play(t)
	w.record()
	if got := w.writers[0].counter.pending[0].Bytes; got < 1024 || got > 2048 {
		t.Errorf("%d bytes", got)
	}
}
