package counter

import (
	"encoding/json"
	"math/rand/v2"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/occurrence"
)

// writer is one sink instance that writes one series.
type writer struct {
	t        testing.TB
	counter  *Counter
	instance Contributor
	sequence uint64
	views    map[string]int64 // what the intake in front of it knows of clients
	busy     bool
	carried  uint64           // by any write
	seen     map[string]int64 // counts of what was answered, by resourceVersion

	ended    map[uint64]bool
	settled  map[occurrence.Outcome]int64
	recorded int64
	// forbidden is what was more than its user may add.
	forbidden int64
}

func newWriter(t testing.TB, digest occurrence.Digest) *writer {
	instance := NewInstance()
	return &writer{
		t: t, instance: instance,
		counter: &Counter{instance: instance, digest: digest, Namespace: "ns", Object: "web-0"},
		views:   map[string]int64{}, seen: map[string]int64{}, ended: map[uint64]bool{}, settled: map[occurrence.Outcome]int64{},
	}
}

// take settles entries: each ends once, with all of its weight.
func (w *writer) take(out []Settled) {
	w.t.Helper()
	for i := range out {
		e := &out[i]
		if w.ended[e.Sequence] {
			w.t.Fatalf("the entry %d has ended twice", e.Sequence)
		}
		w.ended[e.Sequence] = true
		if e.End.Counted() {
			if min(e.Created, e.Written, e.Replayed, e.Forbidden) < 0 {
				w.t.Fatalf("of %d are counted %d, %d, %d and %d", e.Weight, e.Created, e.Written, e.Replayed, e.Forbidden)
			}
			w.settled[occurrence.Created] += e.Created
			w.settled[occurrence.Merged] += e.Written
			w.settled[occurrence.Replayed] += e.Replayed
			w.settled[occurrence.Dropped] += e.Forbidden
		} else {
			w.settled[e.End.Outcome] += e.Weight
		}
		if e.End.Counted() || e.End.Reason == occurrence.PatchForbidden {
			w.forbidden += e.Forbidden
		}
		if e.Notify != nil {
			e.Notify(e.End)
		}
	}
	sum := w.counter.weight()
	for _, n := range w.settled {
		sum += n
	}
	if sum != w.recorded {
		w.t.Fatalf("%d were added, %d have settled or are pending", w.recorded, sum)
	}
}

// wants checks a write before it is answered.
func (w *writer) wants(r *Request) {
	w.t.Helper()
	w.carried = max(w.carried, r.plan.upTo)
	if r.Kind == Create {
		if n := countOf(r.Event); n < 1 {
			w.t.Fatalf("an Event is created with a count of %d", n)
		}
		return
	}
	var p eventPatch
	if err := json.Unmarshal(r.Patch, &p); err != nil {
		w.t.Fatal(err)
	}
	before, ok := w.seen[p.Metadata.ResourceVersion]
	if !ok {
		w.t.Fatalf("a patch of %q, which was never read", p.Metadata.ResourceVersion)
	}
	count := max(1, int64(p.Count))
	if p.Series != nil {
		count = int64(p.Series.Count)
	}
	if count < before {
		w.t.Fatalf("a count of %d is patched to %d", before, count)
	}
}

// wantsOnlyWhatIsSaid checks what settles with an object that was read: nothing is
// counted on it but what it says that it has of us, and that only if we can have
// written it.
func (w *writer) wantsOnlyWhatIsSaid(out []Settled, object *corev1.Event) {
	w.t.Helper()
	s, err := parseContributors(object.Annotations[Annotation])
	mine, _ := find(s.sinks, w.instance)
	for i := range out {
		switch n := out[i].Sequence; {
		case !out[i].End.Counted():
		case err != nil || object.Annotations[identity.Annotation] != w.counter.digest.String():
			w.t.Fatalf("%d is counted on an object without our annotations", n)
		case mine > w.carried || n > mine:
			w.t.Fatalf("%d is counted on an object that has us up to %d, and writes have carried what came up to %d", n, mine, w.carried)
		}
	}
}

func (w *writer) written() int64 { return w.settled[occurrence.Created] + w.settled[occurrence.Merged] }

func (w *writer) add(o *occurrence.Occurrence, event *corev1.Event) {
	w.addAt(w.sequence+uint64(1+rand.IntN(3)), o, event) // gaps are normal
}

func (w *writer) addAt(sequence uint64, o *occurrence.Occurrence, event *corev1.Event) {
	w.sequence = sequence
	w.recorded += o.Weight
	o.Event = event
	if o.Recorded.IsZero() {
		o.Recorded = time.Now()
	}
	e, c := NewEntry(o, &occurrence.Target{Digest: w.counter.digest, Event: event, Name: event.InvolvedObject.Name})
	w.counter.Add(w.sequence, 0, &e, c)
}

// giveUp drops everything that is pending.
func giveUp(_ *world, w *writer) {
	w.take(w.counter.Drop(w.sequence, occurrence.RetriesExhausted, nil))
}
