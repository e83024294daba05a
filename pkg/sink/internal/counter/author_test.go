package counter

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/sinktest"
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
func (p poster) claimed(newStyle bool) *corev1.Event {
	event := sinktest.Event(newStyle)
	event.Message = identity.CombinedPrefix + p.name
	event.Labels = map[string]string{"by": p.name, p.name: "1"}
	event.Annotations = map[string]string{"by": p.name, p.name: "1"}
	event.OwnerReferences = []metav1.OwnerReference{{Name: p.name}}
	event.Finalizers = []string{"example.com/" + p.name}
	if newStyle {
		event.Series = &corev1.EventSeries{Count: 2, LastObservedTime: metav1.NewMicroTime(farAway)}
	} else {
		event.FirstTimestamp, event.LastTimestamp = metav1.Unix(1, 0), metav1.NewTime(farAway)
	}
	return event
}

// farAway is the time that everybody claims.
var farAway = time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC)

// posts has a user raise the total of a name, by all of it or by a part.
func (w *writer) posts(p poster, client string, total, weight int64) (end *occurrence.Settlement) {
	end = &occurrence.Settlement{}
	w.add(&occurrence.Occurrence{
		Weight: weight, Client: client, Total: total, User: p.name, CreateOnly: p.createOnly,
		Settled: func(s occurrence.Settlement) { *end = s },
	}, p.claimed(false))
	return end
}

// posted is one step of a test: what somebody posts, or what happens to the process or
// to the Event before that.
type posted struct {
	poster
	client        string
	total, weight int64
	together      bool // with the one before, in one write
	restarted     bool
	expired       bool
}

func TestWhoMayOnlyCreateChangesNoEventOfOthers(t *testing.T) {
	for _, test := range []struct {
		name      string
		posts     []posted
		count     int64
		begun, by string // whose content it was created with, and who changed it last
		forbidden int64
	}{
		{"after another", []posted{{poster: owner, client: "a", total: 5, weight: 5}, {poster: attacker, client: "b", total: much, weight: much}},
			6, "owner", "owner", much - 1},
		{"with another", []posted{{poster: owner, client: "a", total: 5, weight: 5}, {poster: attacker, client: "b", total: much, weight: much, together: true}},
			6, "owner", "owner", much - 1},
		{"with another and first", []posted{{poster: attacker, client: "b", total: 7, weight: 7}, {poster: owner, client: "a", total: 5, weight: 5, together: true}},
			12, "attacker", "owner", 0},
		{"first, and another who may only create", []posted{{poster: another, client: "b", total: 7, weight: 7}, {poster: attacker, client: "a", total: 5, weight: 5, together: true}},
			8, "another", "another", 4},
		{"in turns with another", []posted{
			{poster: owner, client: "a", total: 5, weight: 5}, {poster: attacker, client: "b", total: 9, weight: 9, together: true},
			{poster: owner, client: "a", total: 6, weight: 1, together: true}, {poster: attacker, client: "c", total: 9, weight: 9, together: true},
		}, 8, "owner", "owner", 16},
		{"under several names", []posted{
			{poster: owner, client: "a", total: 1, weight: 1}, {poster: attacker, client: "b", total: 9, weight: 9}, {poster: attacker, client: "c", total: 9, weight: 9},
		}, 3, "owner", "owner", 16},
		{"what it began itself it may change", []posted{{poster: attacker, client: "a", total: 5, weight: 5}, {poster: attacker, client: "b", total: 4, weight: 4}},
			9, "attacker", "attacker", 0},
		{"what it began before a restart it may not", []posted{{poster: attacker, client: "a", total: 5, weight: 5}, {poster: attacker, client: "b", total: 4, weight: 4, restarted: true}},
			6, "attacker", "attacker", 3},
		{"what has expired it begins anew", []posted{{poster: owner, client: "a", total: 5, weight: 5}, {poster: attacker, client: "b", total: 4, weight: 4, expired: true}},
			4, "attacker", "attacker", 0},
		{"who may patch changes what others began", []posted{{poster: attacker, client: "a", total: 5, weight: 5}, {poster: editor, client: "b", total: 4, weight: 4}},
			9, "attacker", "editor", 0},
		{"an editor does not make it the Event of who began it", []posted{
			{poster: owner, client: "a", total: 5, weight: 5}, {poster: editor, client: "b", total: 4, weight: 4}, {poster: attacker, client: "c", total: 3, weight: 3},
		}, 10, "owner", "editor", 2},
		{"a total that is raised", []posted{
			{poster: owner, client: "a", total: 5, weight: 5}, {poster: attacker, client: "b", total: 5, weight: 5}, {poster: attacker, client: "b", total: much, weight: much - 5},
		}, 6, "owner", "owner", 4 + much - 5},
		{"the name of another", []posted{{poster: owner, client: "a", total: 5, weight: 5}, {poster: attacker, client: "a", total: 9, weight: 9, restarted: true}},
			5, "owner", "owner", 4},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := faultless(t, 1)
			for _, p := range test.posts {
				if !p.together {
					w.settleDown()
				}
				if p.expired {
					w.expire()
				}
				if p.restarted {
					w.writers = append(w.writers, newWriter(w.digest))
				}
				w.writers[len(w.writers)-1].posts(p.poster, p.client, p.total, p.weight)
			}
			w.settleDown()
			w.check()
			stored := w.server.Objects[identity.Name("web-0", w.digest, 0)]
			if got := countOf(stored); got != test.count {
				t.Errorf("the count is %d, want %d", got, test.count)
			}
			if who := stored.OwnerReferences[0].Name; who != test.begun || stored.Finalizers[0] != "example.com/"+test.begun {
				t.Errorf("owner and finalizer are %q and %q, want those of %q", who, stored.Finalizers[0], test.begun)
			}
			if stored.Labels["by"] != test.by || stored.Annotations["by"] != test.by || stored.Message != identity.CombinedPrefix+test.by {
				t.Errorf("changed last by %q, %q, %q, want %q", stored.Labels["by"], stored.Annotations["by"], stored.Message, test.by)
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
	recorded := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for i := range 4 {
		newStyle, together := i%2 == 1, i/2 == 1
		for name, stored := range map[string]time.Time{"from before": recorded.Add(-time.Hour), "to what is later already": recorded.Add(time.Hour)} {
			t.Run(fmt.Sprint(name, ", new style ", newStyle, ", in one write ", together), func(t *testing.T) {
				w := quiet(t, newStyle)
				reports := func(p poster, at time.Time) {
					event := p.claimed(newStyle)
					if p == owner {
						event.LastTimestamp = metav1.NewTime(stored)
						if newStyle {
							event.LastTimestamp, event.Series.LastObservedTime = metav1.Time{}, metav1.NewMicroTime(stored)
						}
					}
					writer := w.writers[0]
					o := &occurrence.Occurrence{Weight: 2, Client: p.name, Total: 2, User: p.name, CreateOnly: p.createOnly, Event: event, Recorded: at}
					e, c := NewEntry(o, &occurrence.Target{Digest: w.digest, Event: event, Name: "web-0"})
					writer.sequence++
					writer.recorded += o.Weight
					writer.counter.Add(writer.sequence, 0, &e, c)
				}
				reports(owner, recorded)
				if !together {
					w.settleDown()
				}
				reports(attacker, recorded)
				w.settleDown()
				after := w.server.Objects[identity.Name("web-0", w.digest, 0)]
				got, first := after.LastTimestamp.Time, owner.claimed(newStyle).FirstTimestamp
				if newStyle {
					got = after.Series.LastObservedTime.Time
				}
				want := stored
				if recorded.After(stored) {
					want = recorded
				}
				if !got.Equal(want) || !after.FirstTimestamp.Equal(&first) {
					t.Errorf("first and last seen at %v and %v, want %v and %v", after.FirstTimestamp, got, first, want)
				}
			})
		}
	}
}

// A report that changes nothing that it may is refused, and its client is told so.
func TestWhoMayOnlyCreateIsToldWhatItMayNotChange(t *testing.T) {
	w := faultless(t, 1)
	writer := w.writers[0]
	writer.posts(owner, "a", 5, 5)
	w.settleDown()
	posted := writer.posts(attacker, "b", 5, 5)
	w.settleDown()
	if posted.Outcome != occurrence.Merged {
		t.Errorf("a post ends as %+v", posted)
	}
	before := w.server.Version
	for name, weight := range map[string]int64{"a raised total": 4, "a changed label": 0} {
		end := writer.posts(attacker, "b", 5+weight, weight)
		w.settleDown()
		if end.Reason != occurrence.PatchForbidden || end.Outcome != occurrence.Dropped || !apierrors.IsForbidden(end.Err) {
			t.Errorf("%s ends as %+v", name, end)
		}
	}
	if end := writer.posts(attacker, "b", 5, 5); true {
		w.settleDown()
		if end.Outcome != occurrence.Replayed {
			t.Errorf("a post that is repeated ends as %+v", end)
		}
	}
	if w.server.Version != before {
		t.Error("there was a write for what changes nothing")
	}
	w.check()
}

// Who began an Event is known, too, if the answer to its create was lost.
func TestWhoBeganAnEventIsKnownThoughAnAnswerWasLost(t *testing.T) {
	for _, test := range []struct {
		name    string
		effect  bool    // of the create that is lost
		between *poster // who creates the Event through another process then
		count   int64
	}{
		{"after the effect", true, nil, 5 + 4},
		{"before the effect", false, nil, 5 + 4},
		{"and another was sooner", false, &owner, 2 + 1 + 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := faultless(t, 2)
			w.writers[0].posts(attacker, "a", 5, 5)
			w.step(w.writers[0], test.effect, false)
			if test.between != nil {
				w.writers[1].posts(*test.between, "c", 2, 2)
				w.step(w.writers[1], true, true)
			}
			w.settleDown()
			w.writers[0].posts(attacker, "b", 4, 4)
			w.settleDown()
			w.check()
			if got := w.server.Counted(); got != test.count {
				t.Errorf("the count is %d, want %d", got, test.count)
			}
		})
	}
}

// The create that took effect carried two users, of whom the first was given up since:
// whose content it had is not known from the answer to the next create.
func TestWhoBeganAnEventIsNotGuessed(t *testing.T) {
	w := faultless(t, 1)
	writer := w.writers[0]
	writer.posts(owner, "a", 5, 5)
	first := writer.sequence
	writer.posts(attacker, "b", much, much)
	w.step(writer, true, false)
	writer.take(writer.counter.Drop(first, occurrence.RetriesExhausted, nil))
	w.settleDown()
	writer.posts(attacker, "c", much, much)
	w.settleDown()
	w.check()
	if got, want := w.server.Counted(), int64(5+1+1); got != want {
		t.Errorf("the count is %d, want %d", got, want)
	}
	if got, want := writer.written(), int64(1+1); got != want {
		t.Errorf("%d have settled as written, want %d", got, want)
	}
}

// What this process wrote before it forgot the series does not tell who began it.
func TestWhoBeganAnEventIsForgottenWithTheSeries(t *testing.T) {
	w := faultless(t, 1)
	writer := w.writers[0]
	writer.posts(owner, "a", 5, 5)
	w.settleDown()
	instance := writer.instance
	writer.counter = &Counter{instance: instance, digest: w.digest, Namespace: "ns", Object: "web-0"}
	writer.posts(attacker, "b", much, much)
	w.step(writer, false, false) // its create, which has no effect
	w.step(writer, true, true)   // another one, and there is the Event
	w.step(writer, true, true)   // which is read
	w.step(writer, true, false)  // and patched
	w.settleDown()
	writer.posts(attacker, "c", much, much)
	w.settleDown()
	w.check()
	if got := w.server.Counted(); got != 7 {
		t.Errorf("the count is %d, want 7", got)
	}
}

// Only what may be combined without a difference shares an entry.
func TestEntriesOfWhoMayOnlyCreateAreTheirOwn(t *testing.T) {
	for _, test := range []struct {
		a, b poster
		want int
	}{{owner, editor, 1}, {attacker, attacker, 1}, {attacker, another, 2}, {owner, attacker, 2}, {attacker, owner, 2}} {
		writer := newWriter(occurrence.Digest{})
		for _, p := range []poster{test.a, test.b} {
			writer.add(&occurrence.Occurrence{Weight: 1, Client: p.name, Total: 1, User: p.name, CreateOnly: p.createOnly}, p.claimed(false))
		}
		if got := len(writer.counter.pending); got != test.want {
			t.Errorf("%s and %s: %d entries, want %d", test.a.name, test.b.name, got, test.want)
		}
	}
}
