package counter

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/test/sinktest"
)

// scenario is a world without faults but those of its steps.
type scenario struct {
	name     string
	writers  int // 1 if it is 0
	newStyle bool
	steps    []step

	ends    []string // of the occurrences, in the order in which they are added
	counted int64    // beside what squatters claim
	events  int      // that exist
	then    func(*testing.T, *world)
}

// play makes the steps. In the end, nothing may be pending.
func (s scenario) play(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, 1, max(1, s.writers), s.newStyle)
	w.play(s.steps)
	w.check()
	return w
}

// play makes steps of the first writer, without faults.
func (w *world) play(steps []step) {
	w.faults = 0
	by(0, steps...)(w)
}

// check plays scenarios and compares how they end.
func check(t *testing.T, scenarios ...scenario) {
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			w := s.play(t)
			var ends []string
			for _, end := range w.ends {
				ends = append(ends, strings.TrimSpace(fmt.Sprint(end.Outcome, " ", end.Reason)))
			}
			counted, events := w.server.Counted()-w.squatted, len(w.server.Objects)
			if !slices.Equal(ends, s.ends) || counted != s.counted || events != s.events {
				t.Errorf("ends %q, %d counted, %d Events; want %q, %d, %d", ends, counted, events, s.ends, s.counted, s.events)
			}
			if s.then != nil {
				s.then(t, w)
			}
		})
	}
}

// step is a step of a scenario. Unless it says otherwise, it is one of the first writer.
type step func(*world)

// by has another writer make steps.
func by(i int, steps ...step) step {
	return func(w *world) {
		before := w.ours
		w.ours = w.writers[i]
		for _, do := range steps {
			do(w)
		}
		w.ours = before
	}
}

// add adds an occurrence for whose end somebody waits.
func (w *world) add(o occurrence.Occurrence, event *corev1.Event) {
	end := &occurrence.Settlement{}
	w.ends = append(w.ends, end)
	o.Settled = func(s occurrence.Settlement) { *end = s }
	w.ours.add(&o, event)
}

func adds(w *world) { w.add(occurrence.Occurrence{Weight: 1}, w.event) }

func addsMany(n int64) step {
	return func(w *world) { w.add(occurrence.Occurrence{Weight: n}, w.event) }
}

// reports adds what a client has counted, as its first report.
func reports(client string, total int64) step {
	return func(w *world) {
		w.add(occurrence.Occurrence{Weight: total, Client: client, Total: total}, w.event)
	}
}

// request returns the next request, whose answer is to follow.
func (w *world) request() flight {
	w.t.Helper()
	if !w.start(w.ours) || len(w.flights) == 0 {
		w.t.Fatal("there is no request")
	}
	f := w.flights[0]
	w.flights = nil
	return f
}

// begins makes the next request, which is answered with those that follow.
func begins(w *world) { w.flights = append(w.flights, w.request()) }

// sends makes the next request, which is answered.
func sends(w *world) { w.land(w.request()) }

func losesRequest(w *world) { w.answer(w.request(), nil, errLost) }

func losesAnswer(w *world) {
	f := w.request()
	w.do(f)
	w.answer(f, nil, errLost)
}

// isLate makes the next request, which takes effect once everything settles.
func isLate(w *world) {
	f := w.request()
	w.late = append(w.late, f)
	w.answer(f, nil, errLost)
}

// isSentTwice makes the next request. Only the second of two answers arrives.
func isSentTwice(w *world) {
	f := w.request()
	w.do(f)
	w.land(f)
}

// isRefused makes the next request, which must be of a kind.
func isRefused(kind Kind, err error) step {
	return func(w *world) {
		f := w.request()
		if f.r.Kind != kind {
			w.t.Fatalf("the next request is a %s, not a %s", f.r.Kind, kind)
		}
		w.answer(f, nil, err)
	}
}

// writes makes all requests of one writer.
func writes(w *world) {
	for len(w.ours.counter.pending) > 0 {
		sends(w)
	}
}

func settles(w *world) { w.settleDown() }

func expires(w *world) { w.server.Expire() }

func may(a Access) step { return func(w *world) { w.may = a } }

// strips has admission remove all annotations, or not.
func strips(is bool) step { return func(w *world) { w.server.Strips = is } }

// changes stores the Events as somebody else has changed them.
func changes(change func(*corev1.Event)) step {
	return func(w *world) {
		for _, e := range w.server.Objects {
			changed := e.DeepCopy()
			change(changed)
			w.server.Store(changed)
		}
	}
}

// squats makes an Event of the series under one of its names, with an annotation.
func squats(suffix int, shares string, change func(*corev1.Event)) step {
	return func(w *world) {
		event := w.event.DeepCopy()
		event.Name = identity.Name(event.InvolvedObject.Name, w.digest, suffix)
		event.UID = "squatted"
		event.Annotations = map[string]string{identity.Annotation: w.digest.String(), Annotation: shares}
		if change != nil {
			change(event)
		}
		w.squatted += countOf(w.server.Store(event))
	}
}

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
	// onSettled is called with what has settled, if it is not nil.
	onSettled func([]Settled)
}

func newWriter(t testing.TB, digest occurrence.Digest) *writer {
	instance := NewInstance()
	return &writer{
		t: t, instance: instance,
		counter: &Counter{instance: instance, digest: digest, Namespace: "ns", Object: "web-0", message: hashOf(sinktest.Event(false).Message)},
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
			w.settled[occurrence.Found] += e.Found
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
	if w.onSettled != nil {
		w.onSettled(out)
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
		case !out[i].End.Counted(), out[i].End.Outcome == occurrence.Found && n <= mine:
		case err != nil || object.Annotations[identity.Annotation] != w.counter.digest.String():
			w.t.Fatalf("%d is counted on an object without our annotations", n)
		case mine > w.carried && w.counter.journal == nil || n > mine || n > w.carried:
			w.t.Fatalf("%d is counted on an object that has us up to %d, and writes have carried what came up to %d", n, mine, w.carried)
		}
	}
}

func (w *writer) written() int64 { return w.settled[occurrence.Created] + w.settled[occurrence.Merged] }

func (w *writer) add(o *occurrence.Occurrence, event *corev1.Event) {
	w.addAt(w.sequence+uint64(1+rand.IntN(3)), o, event) // gaps are normal
}

// addAt adds an occurrence, before which the process may have forgotten the counter.
func (w *writer) addAt(sequence uint64, o *occurrence.Occurrence, event *corev1.Event) {
	if w.isIdle() && rand.IntN(2) == 0 {
		w.recalls()
	}
	w.put(sequence, o, event)
}

func (w *writer) put(sequence uint64, o *occurrence.Occurrence, event *corev1.Event) {
	w.sequence = sequence
	w.recorded += o.Weight
	event = event.DeepCopy() // each has its own
	o.Event = event
	if o.Recorded.IsZero() {
		o.Recorded = time.Now()
	}
	e, c := NewEntry(o, &occurrence.Target{Digest: w.counter.digest, Event: event, Name: event.InvolvedObject.Name})
	w.counter.Add(w.sequence, 0, &e, c)
}

// isIdle reports whether the process may forget the counter.
func (w *writer) isIdle() bool { return len(w.counter.pending) == 0 && w.counter.observed != nil }

// recalls has the process forget the counter, and remember its state.
func (w *writer) recalls() {
	c := w.counter
	w.counter = &Counter{
		instance: c.instance, journal: c.journal, Key: c.Key, Namespace: c.Namespace, Object: c.Object,
		digest: c.digest, combined: c.combined, keyed: c.keyed, message: c.message,
	}
	w.counter.SetState(c.State())
}

// giveUp drops everything that is pending.
func giveUp(_ *world, w *writer) {
	w.take(w.counter.Drop(w.sequence, occurrence.RetriesExhausted, nil))
}
