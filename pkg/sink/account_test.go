package sink

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/apiclient"
)

var eventsResource = schema.GroupResource{Resource: "events"}

// server is the part of an apiserver that the algorithm relies on: names are
// unique, and a patch with a resourceVersion needs that one to be current.
type server struct {
	objects map[string]*corev1.Event
	version int
	// strips: admission removes our annotations from what is written.
	strips  bool
	expired []*corev1.Event // deleted objects, as they were
}

func newServer() *server { return &server{objects: map[string]*corev1.Event{}} }

func (s *server) stamp(e *corev1.Event) *corev1.Event {
	s.version++
	if s.strips {
		e.Annotations = nil
	}
	e.ResourceVersion = strconv.Itoa(s.version)
	s.objects[e.Name] = e
	return e.DeepCopy()
}

func (s *server) do(r *request) (*corev1.Event, error) {
	stored, ok := s.objects[r.name]
	if r.verb == apiclient.VerbCreate {
		if ok {
			return nil, apierrors.NewAlreadyExists(eventsResource, r.name)
		}
		created := r.event.DeepCopy()
		created.UID = types.UID(fmt.Sprint("uid-", s.version))
		return s.stamp(created), nil
	}
	if !ok {
		return nil, apierrors.NewNotFound(eventsResource, r.name)
	}
	if r.verb.IsRead() {
		return stored.DeepCopy(), nil
	}
	var p eventPatch
	if err := json.Unmarshal(r.patch, &p); err != nil {
		return nil, err
	}
	if p.Metadata.ResourceVersion != stored.ResourceVersion {
		return nil, apierrors.NewConflict(eventsResource, r.name, errors.New("it has been modified"))
	}
	changed := stored.DeepCopy()
	if changed.Annotations == nil {
		changed.Annotations = map[string]string{}
	}
	for k, v := range p.Metadata.Annotations {
		changed.Annotations[k] = v
	}
	for k, v := range p.Metadata.Labels {
		if changed.Labels == nil {
			changed.Labels = make(map[string]string)
		}
		changed.Labels[k] = v
	}
	if p.Message != "" {
		changed.Message = p.Message
	}
	if p.LastTimestamp != nil {
		changed.LastTimestamp = *p.LastTimestamp
	}
	if p.Count != 0 {
		changed.Count = p.Count
	}
	if p.Series != nil {
		changed.Series = p.Series
	}
	return s.stamp(changed), nil
}

func (s *server) expire() {
	for name, e := range s.objects {
		s.expired = append(s.expired, e)
		delete(s.objects, name)
	}
}

// counted is the sum over all objects that there are and were.
func (s *server) counted() int64 {
	var sum int64
	for _, e := range s.objects {
		sum += countOf(e)
	}
	for _, e := range s.expired {
		sum += countOf(e)
	}
	return sum
}

// writer is one sink instance that owes to one series.
type writer struct {
	series   *series
	instance contributor
	sequence uint64
	views    map[string]int64 // what the intake in front of it knows of clients
	busy     bool

	settled  map[occurrence.Outcome]int64
	recorded int64
	// forbidden is what was more than its user may add.
	forbidden int64
}

func newWriter(digest occurrence.Digest) *writer {
	instance := newInstance()
	return &writer{
		instance: instance,
		series:   newSeries(&account{instance: instance, digest: digest, namespace: "ns", object: "web-0"}),
		views:    map[string]int64{},
		settled:  map[occurrence.Outcome]int64{},
	}
}

func (w *writer) take(out []settled) {
	for i := range out {
		e := &out[i]
		if e.end.Counted() {
			w.settled[occurrence.Created] += e.created
			w.settled[occurrence.Merged] += e.written
			w.settled[occurrence.Replayed] += e.replayed
			w.settled[occurrence.Dropped] += e.forbidden
		} else {
			w.settled[e.end.Outcome] += e.weight
		}
		if e.end.Counted() || e.end.Reason == occurrence.PatchForbidden {
			w.forbidden += e.forbidden
		}
		if e.settled != nil {
			e.settled(e.end)
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
	o.Event, o.Recorded = event, time.Now()
	e, c := newEntry(o, &occurrence.Target{Digest: w.series.account.digest, Event: event, Name: event.InvolvedObject.Name})
	w.series.account.add(w.sequence, 0, &e, c)
}

// flight is a request under way.
type flight struct {
	writer *writer
	r      *request
}

// world is a number of writers and one server, with everything that can go
// wrong between them.
type world struct {
	t       *testing.T
	rng     *rand.Rand
	server  *server
	event   *corev1.Event
	digest  occurrence.Digest
	writers []*writer
	clients map[string]int64
	flights []flight
	late    []flight // given up by their writer, not yet by the network
	faults  float64  // probability that an answer is lost
	slack   int64    // what expiry may have counted twice
	may     means
}

func (w *world) means(occurrence.API) means { return w.may }

func newWorld(t *testing.T, seed uint64, writers int, newStyle bool) *world {
	event := testEvent(newStyle)
	w := &world{
		t: t, rng: rand.New(rand.NewPCG(seed, 0)), server: newServer(),
		event: event, digest: identity.Of(event), clients: map[string]int64{}, faults: 0.3, may: means{change: apiclient.VerbPatch},
	}
	for range writers {
		w.writers = append(w.writers, newWriter(w.digest))
	}
	return w
}

func testEvent(newStyle bool) *corev1.Event {
	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: "ns"},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "ns", Name: "web-0"},
		Reason:         "Pulled", Message: "image pulled", Type: "Normal",
	}
	if newStyle {
		event.EventTime = metav1.NewMicroTime(time.Unix(1_700_000_000, 0))
	}
	return event
}

func (w *world) record() {
	writer := w.writers[w.rng.IntN(len(w.writers))]
	writer.add(&occurrence.Occurrence{Weight: 1 + w.rng.Int64N(3), Settled: w.awaited()}, w.event)
}

// awaited lets somebody wait for every fourth occurrence; the others share
// entries.
func (w *world) awaited() func(occurrence.Settlement) {
	if w.rng.IntN(4) > 0 {
		return nil
	}
	return func(occurrence.Settlement) {}
}

// report lets a client raise its total, or repeat itself, through any writer.
func (w *world) report(clients int) {
	client := fmt.Sprint("client-", w.rng.IntN(clients))
	if w.clients[client] == 0 || w.rng.IntN(3) > 0 {
		w.clients[client] += 1 + w.rng.Int64N(3)
	}
	writer := w.writers[w.rng.IntN(len(w.writers))]
	if w.rng.IntN(4) == 0 {
		writer.views[client] = 0 // an earlier report may have no outcome yet
	}
	w.reportTo(writer, client)
}

func (w *world) reportTo(writer *writer, client string) {
	total := w.clients[client]
	weight := total - writer.views[client]
	if weight == 0 {
		weight = total // a retried POST, whose view was lost
	}
	writer.views[client] = total
	writer.add(&occurrence.Occurrence{Weight: weight, Client: client, Total: total, Settled: w.awaited()}, w.event)
}

// start lets an idle writer make its next request.
func (w *world) start(writer *writer) bool {
	if writer.busy {
		return false
	}
	r, out := writer.series.account.next(w.means)
	writer.take(out)
	if r == nil {
		return len(out) > 0
	}
	writer.busy = true
	w.flights = append(w.flights, flight{writer, r})
	return true
}

func (w *world) answer(f flight, object *corev1.Event, err error) {
	out, _ := f.writer.series.apply(f.r, apiclient.Classify(f.r.verb, object, err), time.Now())
	f.writer.take(out)
	f.writer.busy = false
}

// finish ends one request under way, in one of the ways that a request can end.
func (w *world) finish(refusals bool) {
	if len(w.flights) == 0 {
		return
	}
	i := w.rng.IntN(len(w.flights))
	f := w.flights[i]
	w.flights = append(w.flights[:i], w.flights[i+1:]...)
	lost := apierrors.NewInternalError(errors.New("lost"))
	switch p := w.rng.Float64(); {
	case p < w.faults/4: // lost on the way there
		w.answer(f, nil, lost)
	case p < w.faults/2: // takes effect, and the answer is lost
		w.server.do(f.r)
		w.answer(f, nil, lost)
	case p < w.faults*3/4: // lost to the writer, but takes effect some time later
		w.late = append(w.late, f)
		w.answer(f, nil, lost)
	case p < w.faults:
		w.answer(f, nil, apierrors.NewTooManyRequests("later", 0))
	case refusals && p < w.faults+0.03:
		w.answer(f, nil, apierrors.NewInvalid(schema.GroupKind{Kind: "Event"}, "", nil))
	default:
		object, err := w.server.do(f.r)
		w.answer(f, object, err)
	}
}

// arrive lets one late request take effect, if it still can.
func (w *world) arrive() {
	if len(w.late) > 0 {
		i := w.rng.IntN(len(w.late))
		w.server.do(w.late[i].r)
		w.late = append(w.late[:i], w.late[i+1:]...)
	}
}

// expire deletes the Event. What a writer has in it without knowing so yet will
// be written to the next one too; that is what docs/counting.md excepts.
func (w *world) expire() {
	for _, e := range w.server.objects {
		s, err := parseShares(e.Annotations[sharesAnnotation])
		if err != nil {
			w.t.Fatal(err)
		}
		for _, writer := range w.writers {
			mine, _ := find(s.sinks, writer.instance)
			for _, e := range writer.series.account.pending {
				if e.sequence <= mine {
					w.slack += e.weight
				}
			}
		}
	}
	// A late create could bring an expired Event back much later; the
	// apiserver's own time-outs are far shorter than any TTL.
	w.late = nil
	w.server.expire()
}

// settleDown ends all faults and lets everybody finish.
func (w *world) settleDown() {
	w.faults = 0
	for len(w.late) > 0 {
		w.arrive()
	}
	for range 10_000 {
		moved := false
		for _, writer := range w.writers {
			moved = w.start(writer) || moved
		}
		if !moved && len(w.flights) == 0 {
			return
		}
		w.finish(false)
	}
	w.t.Fatal("writers do not settle")
}

func (w *world) check() (written, uncertain int64) {
	var recorded, settled int64
	for _, writer := range w.writers {
		recorded += writer.recorded
		written += writer.written()
		uncertain += writer.settled[occurrence.Uncertain]
		for _, n := range writer.settled {
			settled += n
		}
		if n := len(writer.series.account.pending); n > 0 {
			w.t.Errorf("%d entries pending at the end", n)
		}
	}
	if recorded != settled {
		w.t.Errorf("recorded %d, settled %d", recorded, settled)
	}
	return written, uncertain
}

func TestAccountsAgreeUnderAnyInterleaving(t *testing.T) {
	const seeds = 300
	for _, test := range []struct {
		name                      string
		writers, clients          int
		newStyle                  bool
		refusals, expiry, giveUps bool
	}{
		{name: "anonymous", writers: 4},
		{name: "new style", writers: 4, newStyle: true},
		{name: "clients", writers: 4, clients: 5},
		{name: "refusals", writers: 4, clients: 5, refusals: true},
		{name: "give-ups", writers: 4, clients: 5, giveUps: true},
		{name: "expiry", writers: 4, clients: 5, expiry: true},
		{name: "more writers and clients than are remembered", writers: 2 * maxSinks, clients: 2 * maxClients, giveUps: true},
		{name: "everything", writers: maxSinks, clients: maxClients, refusals: true, expiry: true, giveUps: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(seeds) {
				w := newWorld(t, seed, test.writers, test.newStyle)
				for range 200 {
					switch n := w.rng.IntN(100); {
					case n < 15:
						w.record()
					case n < 30 && test.clients > 0:
						w.report(test.clients)
					case n < 55:
						w.start(w.writers[w.rng.IntN(len(w.writers))])
					case n < 90:
						w.finish(test.refusals)
					case n < 95:
						w.arrive()
					case n < 96 && test.expiry:
						w.expire()
					case n < 98 && test.giveUps:
						a := w.writers[w.rng.IntN(len(w.writers))]
						if !a.busy {
							a.take(a.series.account.giveUp(a.sequence, occurrence.RetriesExhausted, nil))
						}
					}
				}
				w.settleDown()
				written, uncertain := w.check()
				counted := w.server.counted()
				if counted < written || counted > written+uncertain+w.slack {
					t.Errorf("counted %d, written %d, uncertain %d, possibly on two objects %d", counted, written, uncertain, w.slack)
				}
				if uncertain != 0 && !test.giveUps && !test.refusals {
					t.Errorf("%d uncertain, though nobody gave up", uncertain)
				}
				if n := len(w.server.objects); n > 1 && !test.refusals { // else one may have been left
					t.Errorf("%d objects", n)
				}
				if t.Failed() {
					t.Fatalf("seed %d", seed)
				}
			}
		})
	}
}

// Clients alone: whatever they repeat and through whomever, what is stored is
// exactly the sum of their totals.
func TestClientsAreCountedOnce(t *testing.T) {
	for seed := range uint64(300) {
		w := newWorld(t, seed, 4, seed%2 == 0)
		for range 200 {
			switch n := w.rng.IntN(100); {
			case n < 20:
				w.report(maxClients)
			case n < 50:
				w.start(w.writers[w.rng.IntN(len(w.writers))])
			case n < 90:
				w.finish(false)
			default:
				w.arrive()
			}
		}
		w.settleDown()
		w.check()
		var totals int64
		for _, total := range w.clients {
			totals += total
		}
		if counted := w.server.counted(); counted != totals {
			t.Fatalf("seed %d: counted %d, clients reported %d", seed, counted, totals)
		}
	}
}

func TestRaisedTotalAddsItsDifferenceAfterItsEntryIsGone(t *testing.T) {
	w := newWorld(t, 1, 1, false)
	w.faults = 0
	for i := range maxClients + 1 {
		client := fmt.Sprint("client-", i)
		w.clients[client] = 5
		w.reportTo(w.writers[0], client)
		w.settleDown()
	}
	w.clients["client-0"] = 7
	w.reportTo(w.writers[0], "client-0")
	w.settleDown()
	if got, want := w.server.counted(), int64(5*(maxClients+1)+2); got != want {
		t.Errorf("counted %d, want %d", got, want)
	}
}

func TestCountSaturates(t *testing.T) {
	w := newWorld(t, 1, 1, false)
	w.faults = 0
	w.writers[0].add(&occurrence.Occurrence{Weight: math.MaxInt32 + 1}, w.event)
	w.settleDown()
	if got := w.server.counted(); got != math.MaxInt32 {
		t.Errorf("counted %d", got)
	}
}

// What an Event's count cannot take goes on with the next one.
func TestCountThatIsTooHighGoesOnWithAnotherEvent(t *testing.T) {
	w := quiet(t, false)
	for _, weight := range []int64{math.MaxInt32 - 1, 1, 1, 2} {
		w.writers[0].add(&occurrence.Occurrence{Weight: weight}, w.event)
		w.settleDown()
	}
	written, _ := w.check()
	if got := w.server.counted(); got != math.MaxInt32+3 || written != got || len(w.server.objects) != 2 {
		t.Errorf("counted %d, written %d, in %d Events", got, written, len(w.server.objects))
	}
}

func TestForeignObjectIsLeftAlone(t *testing.T) {
	w := newWorld(t, 1, 2, false)
	w.faults = 0
	var foreign []*corev1.Event
	for suffix := range 2 {
		e := testEvent(false)
		e.Name = identity.Name(e.InvolvedObject.Name, w.digest, suffix)
		e.Annotations = map[string]string{identity.Annotation: "another"}
		foreign = append(foreign, w.server.stamp(e))
	}
	for range 5 {
		w.record()
		w.settleDown()
	}
	written, _ := w.check()
	for _, e := range foreign {
		if now := w.server.objects[e.Name]; now.ResourceVersion != e.ResourceVersion {
			t.Errorf("foreign object %s was written", e.Name)
		}
	}
	ours := w.server.objects[identity.Name("web-0", w.digest, 2)]
	if ours == nil || countOf(ours) != written {
		t.Errorf("want a count of %d on the first free name, got %v", written, ours)
	}
}

// A write that the client library or a proxy sent twice: the first attempt took
// effect, and only the conflict of the second is heard of.
func TestWriteThatWasSentTwiceIsCountedOnce(t *testing.T) {
	w := newWorld(t, 1, 2, false)
	w.faults = 0
	for i := range 6 {
		w.record()
		for _, writer := range w.writers {
			if w.start(writer) {
				f := w.flights[0]
				w.flights = nil
				if i%2 == 0 {
					w.server.do(f.r)
				}
				object, err := w.server.do(f.r)
				w.answer(f, object, err)
			}
		}
		w.settleDown()
	}
	written, uncertain := w.check()
	if counted := w.server.counted(); counted != written || uncertain != 0 || w.writers[0].settled[occurrence.Replayed] != 0 {
		t.Errorf("counted %d, written %d, uncertain %d", counted, written, uncertain)
	}
}

// A list that is full of instances that are long gone decides as well as one
// with room.
func TestLostWriteIsDecidedThoughTheListIsFull(t *testing.T) {
	for name, test := range map[string]struct{ effect bool }{"lost on the way": {false}, "took effect": {true}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1, maxSinks+1, false)
			w.faults = 0
			lost := apierrors.NewInternalError(errors.New("lost"))
			for i, writer := range w.writers {
				writer.add(&occurrence.Occurrence{Weight: 1}, w.event)
				if i < maxSinks {
					w.settleDown()
					continue
				}
				// The new instance's first write and its first patch are lost.
				for range 3 {
					w.start(writer)
					f := w.flights[0]
					w.flights = nil
					if f.r.verb == apiclient.VerbRead {
						object, err := w.server.do(f.r)
						w.answer(f, object, err)
						continue
					}
					if test.effect {
						w.server.do(f.r)
					}
					w.answer(f, nil, lost)
				}
			}
			w.settleDown()
			written, uncertain := w.check()
			if counted := w.server.counted(); counted != written || uncertain != 0 || written != maxSinks+1 {
				t.Errorf("counted %d, written %d, uncertain %d", counted, written, uncertain)
			}
		})
	}
}

func TestManyClientsContinueAfterTheirEventdIsGone(t *testing.T) {
	w := newWorld(t, 1, 2, false)
	w.faults = 0
	for _, writer := range w.writers { // the second does not know the first's views
		for i := range 40 {
			client := fmt.Sprint("client-", i)
			w.clients[client] += 5
			w.reportTo(writer, client)
		}
		w.settleDown()
	}
	if got := w.server.counted(); got != 40*10 {
		t.Errorf("counted %d, want %d", got, 40*10)
	}
}

// An entry says what any of its occurrences does.
func TestMergedEntryChangesAndIsAcknowledgedIfAnyOccurrenceIs(t *testing.T) {
	for _, first := range []bool{false, true} {
		for _, second := range []bool{false, true} {
			e := entry{changes: first, acknowledged: first}
			e.merge(&entry{changes: second, acknowledged: second})
			if want := first || second; e.changes != want || e.acknowledged != want {
				t.Errorf("%t and %t: changes %t, acknowledged %t", first, second, e.changes, e.acknowledged)
			}
		}
	}
}
