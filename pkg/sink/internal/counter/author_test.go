package counter

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/test/sinktest"
)

// much is the count of somebody who would have an Event say it.
const much = 2_000_000_001

// poster is an authenticated user.
type poster struct {
	name       string
	createOnly bool
}

var (
	owner    = poster{name: "owner"}
	editor   = poster{name: "editor"}
	attacker = poster{name: "attacker", createOnly: true}
	another  = poster{name: "another", createOnly: true}
)

// claimed is what somebody says of an Event beside its identity. It is about a combined
// one, whose message is not part of that.
func (p poster) claimed(event *corev1.Event) *corev1.Event {
	event = event.DeepCopy()
	event.Message = identity.CombinedPrefix + p.name
	event.Labels = map[string]string{"by": p.name, p.name: "1"}
	event.Annotations = map[string]string{"by": p.name, p.name: "1"}
	event.OwnerReferences = []metav1.OwnerReference{{Name: p.name}}
	event.Finalizers = []string{"example.com/" + p.name}
	if event.EventTime.IsZero() {
		event.FirstTimestamp = metav1.Unix(1, 0)
	}
	at(farAway.Sub(noon))(event)
	return event
}

// farAway is the time that everybody claims.
var farAway = time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC)

// post is a report by which a user raises the total of a name, by all of it or by a part.
func (p poster) post(client string, total, weight int64) occurrence.Occurrence {
	return occurrence.Occurrence{
		Weight: weight, Client: client, Total: total, User: p.name, CreateOnly: p.createOnly,
	}
}

func posts(p poster, client string, total, weight int64) step {
	return func(w *world) { w.add(p.post(client, total, weight), p.claimed(w.event)) }
}

// restarts has another process go on.
func restarts(w *world) {
	w.writers = append(w.writers, newWriter(w.t, w.digest))
	w.ours = w.writers[len(w.writers)-1]
}

// forgets has the process forget the series.
func forgets(w *world) {
	w.ours.counter = &Counter{instance: w.ours.instance, digest: w.digest, Namespace: "ns", Object: "web-0"}
}

// drops gives up the first of what is pending.
func drops(w *world) {
	w.ours.take(w.ours.counter.Drop(w.ours.counter.pending[0].Sequence, occurrence.RetriesExhausted, nil))
}

func TestWhoMayOnlyCreateChangesNoEventOfOthers(t *testing.T) {
	for _, test := range []struct {
		name      string
		steps     []step
		count     int64
		begun, by string // whose content it was created with, and who changed it last
		forbidden int64
	}{
		{"after another", []step{posts(owner, "a", 5, 5), settles, posts(attacker, "b", much, much)},
			6, "owner", "owner", much - 1},
		{"with another", []step{posts(owner, "a", 5, 5), posts(attacker, "b", much, much)},
			6, "owner", "owner", much - 1},
		{"with another and first", []step{posts(attacker, "b", 7, 7), posts(owner, "a", 5, 5)},
			12, "attacker", "owner", 0},
		{"first, and another who may only create", []step{posts(another, "b", 7, 7), posts(attacker, "a", 5, 5)},
			8, "another", "another", 4},
		{"in turns with another", []step{posts(owner, "a", 5, 5), posts(attacker, "b", 9, 9),
			posts(owner, "a", 6, 1), posts(attacker, "c", 9, 9)},
			8, "owner", "owner", 16},
		{"under several names", []step{posts(owner, "a", 1, 1), settles, posts(attacker, "b", 9, 9), settles,
			posts(attacker, "c", 9, 9)},
			3, "owner", "owner", 16},
		{"what it began itself it may change", []step{posts(attacker, "a", 5, 5), settles, posts(attacker, "b", 4, 4)},
			9, "attacker", "attacker", 0},
		{"what it began before a restart it may not", []step{posts(attacker, "a", 5, 5), settles, restarts,
			posts(attacker, "b", 4, 4)},
			6, "attacker", "attacker", 3},
		{"what has expired it begins anew", []step{posts(owner, "a", 5, 5), settles, expires, posts(attacker, "b", 4, 4)},
			4, "attacker", "attacker", 0},
		{"who may patch changes what others began", []step{posts(attacker, "a", 5, 5), settles, posts(editor, "b", 4, 4)},
			9, "attacker", "editor", 0},
		{"an editor does not make it the Event of who began it", []step{posts(owner, "a", 5, 5), settles,
			posts(editor, "b", 4, 4), settles, posts(attacker, "c", 3, 3)},
			10, "owner", "editor", 2},
		{"a total that is raised", []step{posts(owner, "a", 5, 5), settles, posts(attacker, "b", 5, 5), settles,
			posts(attacker, "b", much, much-5)},
			6, "owner", "owner", 4 + much - 5},
		{"the name of another", []step{posts(owner, "a", 5, 5), settles, restarts, posts(attacker, "a", 9, 9)},
			5, "owner", "owner", 4},
		{"the answer to its create was lost after the effect", []step{posts(attacker, "a", 5, 5), losesAnswer, settles,
			posts(attacker, "b", 4, 4)},
			9, "attacker", "attacker", 0},
		{"the answer to its create was lost before the effect", []step{posts(attacker, "a", 5, 5), losesRequest, settles,
			posts(attacker, "b", 4, 4)},
			9, "attacker", "attacker", 0},
		{"its create was lost, and another process was sooner", []step{posts(attacker, "a", 5, 5), losesRequest, restarts,
			posts(owner, "c", 2, 2), sends, settles, by(0, posts(attacker, "b", 4, 4))},
			2 + 1 + 1, "owner", "owner", 4 + 3},
		// From the answer to the next create it is not known whose content the first had.
		{"its create was lost with that of another, who is given up", []step{posts(owner, "a", 5, 5),
			posts(attacker, "b", much, much), losesAnswer, drops, settles, posts(attacker, "c", much, much)},
			5 + 1 + 1, "owner", "owner", 2 * (much - 1)},
		// The next create is that of another, and takes effect.
		{"its create was lost, and it was given up", []step{posts(attacker, "a", 5, 5), losesRequest, drops,
			posts(owner, "b", 2, 2), losesAnswer, settles, posts(attacker, "c", 9, 9)},
			2 + 1, "owner", "owner", 8},
		// After a create without effect there are another one, which finds the Event, a read and a patch.
		{"what this process wrote before it forgot the series", []step{posts(owner, "a", 5, 5), settles, forgets,
			posts(attacker, "b", much, much), losesRequest, sends, sends, losesAnswer, settles,
			posts(attacker, "c", much, much)},
			5 + 1 + 1, "owner", "owner", 2 * (much - 1)},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := scenario{steps: append(test.steps, settles)}.play(t)
			stored := w.server.Objects[identity.Name("web-0", w.digest, 0)]
			if got := countOf(stored); got != test.count {
				t.Errorf("the count is %d, want %d", got, test.count)
			}
			if who := stored.OwnerReferences[0].Name; who != test.begun || stored.Finalizers[0] != "example.com/"+test.begun {
				t.Errorf("owner and finalizer are %q and %q, want those of %q", who, stored.Finalizers[0], test.begun)
			}
			said := []string{stored.Labels["by"], stored.Annotations["by"], stored.Message}
			if want := []string{test.by, test.by, identity.CombinedPrefix + test.by}; !slices.Equal(said, want) {
				t.Errorf("label, annotation and message are %q, want %q", said, want)
			}
			if got := w.forbidden(); got != test.forbidden {
				t.Errorf("%d were forbidden, want %d", got, test.forbidden)
			}
		})
	}
}

func (w *world) forbidden() (sum int64) {
	for _, writer := range w.writers {
		sum += writer.forbidden
	}
	return sum
}

// The last-seen time moves by our clock, forward only.
func TestWhoMayOnlyCreateMovesTheLastSeenTimeByOurClock(t *testing.T) {
	reports := func(p poster, said time.Time) step {
		return func(w *world) {
			event := p.claimed(w.event)
			at(said.Sub(noon))(event)
			o := p.post(p.name, 2, 2)
			o.Recorded = noon
			w.add(o, event)
		}
	}
	for i := range 8 {
		newStyle, together, stored := i&1 != 0, i&2 != 0, noon.Add(-time.Hour)
		want := noon
		if i&4 != 0 {
			stored = noon.Add(time.Hour)
			want = stored
		}
		t.Run(fmt.Sprintf("new style %t, in one write %t, from %v", newStyle, together, stored), func(t *testing.T) {
			steps := []step{reports(owner, stored), settles, reports(attacker, farAway), settles}
			if together {
				steps = slices.Delete(steps, 1, 2)
			}
			w := scenario{newStyle: newStyle, steps: steps}.play(t)
			after := w.server.Objects[identity.Name("web-0", w.digest, 0)]
			first, last := owner.claimed(w.event).FirstTimestamp, after.LastTimestamp.Time
			if newStyle {
				last = after.Series.LastObservedTime.Time
			}
			if !last.Equal(want) || !after.FirstTimestamp.Equal(&first) {
				t.Errorf("first and last seen at %v and %v, want %v and %v", after.FirstTimestamp, last, first, want)
			}
		})
	}
}

// A report that changes nothing that it may is refused, and its client is told so.
func TestWhoMayOnlyCreateIsToldWhatItMayNotChange(t *testing.T) {
	var version int
	check(t, scenario{
		steps: []step{
			posts(owner, "a", 5, 5), settles, posts(attacker, "b", 5, 5), settles,
			func(w *world) { version = w.server.Version },
			posts(attacker, "b", 9, 4), settles, // a raised total
			posts(attacker, "b", 5, 0), settles, // a changed label
			posts(attacker, "b", 5, 5), settles, // repeated
		},
		ends:    []string{"created", "merged", "dropped patch_forbidden", "dropped patch_forbidden", "replayed"},
		counted: 6, events: 1,
		then: func(t *testing.T, w *world) {
			if w.server.Version != version {
				t.Error("there was a write for what changes nothing")
			}
			if err := w.ends[2].Err; !apierrors.IsForbidden(err) {
				t.Errorf("the error is %v", err)
			}
		},
	})
}

// Only what may be combined without a difference shares an entry.
func TestEntriesOfWhoMayOnlyCreateAreTheirOwn(t *testing.T) {
	for _, test := range []struct {
		a, b poster
		want int
	}{{owner, editor, 1}, {attacker, attacker, 1}, {attacker, another, 2}, {owner, attacker, 2}, {attacker, owner, 2}} {
		writer := newWriter(t, occurrence.Digest{})
		for _, p := range []poster{test.a, test.b} {
			o := p.post(p.name, 1, 1)
			writer.add(&o, p.claimed(sinktest.Event(false)))
		}
		if got := len(writer.counter.pending); got != test.want {
			t.Errorf("%s and %s: %d entries, want %d", test.a.name, test.b.name, got, test.want)
		}
	}
}

const million = 1_000_000 // more than an owner ever counts

// Whatever is lost, expires, is given up or restarted: an Event that was begun by who
// may patch is changed by nobody who may only create, and everything is accounted for.
func TestNobodyWhoMayOnlyCreateChangesAnEventUnderAnyInterleaving(t *testing.T) {
	r := random{may: all, refusals: true, expiry: true}
	r.report = func(w *world) {
		p, total := []poster{owner, attacker, another}[w.rng.IntN(3)], int64(2)
		if p.createOnly {
			total = million
		}
		o := p.post(fmt.Sprint(p.name, w.rng.IntN(20)), total, total)
		o.Settled = w.awaited()
		w.writers[w.rng.IntN(len(w.writers))].add(&o, p.claimed(w.event))
	}
	r.drop = func(w *world, writer *writer) {
		w.ours = writer
		if pending := writer.counter.pending; len(pending) > 0 {
			writer.take(writer.counter.Drop(pending[w.rng.IntN(len(pending))].Sequence, occurrence.RetriesExhausted, nil))
		} else if w.rng.IntN(2) == 0 || !writer.isIdle() {
			forgets(w)
		} else {
			writer.recalls()
		}
	}
	r.after = func(w *world) {
		for _, e := range slices.Concat(w.server.Expired, slices.Collect(maps.Values(w.server.Objects))) {
			w.untouched(e)
		}
	}
	limited := 0
	for seed := range uint64(100) {
		w := r.run(t, seed, false)
		r.after(w)
		if w.forbidden() > 0 {
			limited++
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	if limited < 50 {
		t.Errorf("in %d runs only was anybody limited", limited)
	}
}

// untouched checks an Event that its owner has begun.
func (w *world) untouched(e *corev1.Event) {
	if e.OwnerReferences[0].Name != owner.name {
		return
	}
	of := func(m map[string]string) bool {
		return m["by"] == attacker.name || m["by"] == another.name || m[attacker.name] != "" || m[another.name] != ""
	}
	if countOf(e) >= million || of(e.Labels) || of(e.Annotations) || e.Message != identity.CombinedPrefix+owner.name {
		w.t.Fatalf("the owner's Event has become %+v", e)
	}
}
