package counter

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/sinktest"
)

// writer is one sink instance that owes to one series.
type writer struct {
	counter  *Counter
	instance Contributor
	sequence uint64
	views    map[string]int64 // what the intake in front of it knows of clients
	busy     bool

	settled  map[occurrence.Outcome]int64
	recorded int64
	// forbidden is what was more than its user may add.
	forbidden int64
}

func newWriter(digest occurrence.Digest) *writer {
	instance := NewInstance()
	return &writer{
		instance: instance,
		counter:  &Counter{instance: instance, digest: digest, Namespace: "ns", Object: "web-0"},
		views:    map[string]int64{},
		settled:  map[occurrence.Outcome]int64{},
	}
}

func (w *writer) take(out []Settled) {
	for i := range out {
		e := &out[i]
		if e.End.Counted() {
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
}

func (w *writer) written() int64 { return w.settled[occurrence.Created] + w.settled[occurrence.Merged] }

func (w *writer) add(o *occurrence.Occurrence, event *corev1.Event) {
	w.addAt(w.sequence+uint64(1+rand.IntN(3)), o, event) // gaps are normal
}

func (w *writer) addAt(sequence uint64, o *occurrence.Occurrence, event *corev1.Event) {
	w.sequence = sequence
	w.recorded += o.Weight
	o.Event, o.Recorded = event, time.Now()
	e, c := NewEntry(o, &occurrence.Target{Digest: w.counter.digest, Event: event, Name: event.InvolvedObject.Name})
	w.counter.Add(w.sequence, 0, &e, c)
}

// flight is a request under way.
type flight struct {
	writer *writer
	r      *Request
}

// world is a number of writers and one server, with everything that can go
// wrong between them.
type world struct {
	t       *testing.T
	rng     *rand.Rand
	server  *sinktest.Server
	event   *corev1.Event
	digest  occurrence.Digest
	writers []*writer
	clients map[string]int64
	flights []flight
	late    []flight // given up by their writer, not yet by the network
	faults  float64  // probability that an answer is lost
	slack   int64    // what expiry may have counted twice
	may     Access
	// addsWhilePlanned is how often an occurrence is added while a request is planned.
	addsWhilePlanned int
}

func newWorld(t *testing.T, seed uint64, writers int, newStyle bool) *world {
	event := sinktest.Event(newStyle)
	w := &world{
		t: t, rng: rand.New(rand.NewPCG(seed, 0)), server: sinktest.NewServer(),
		event: event, digest: identity.Of(event), clients: map[string]int64{}, faults: 0.3, may: Access{Change: true},
	}
	for range writers {
		w.writers = append(w.writers, newWriter(w.digest))
	}
	return w
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

// nextRequest returns the next request of a counter, nil if there is none. meanwhile is
// called before and after a request is planned.
func nextRequest(a *Counter, may Access, meanwhile func()) (*Request, []Settled) {
	for len(a.pending) > 0 {
		d, out := a.Begin(may)
		if d == nil {
			return nil, out
		}
		meanwhile()
		d.Plan()
		meanwhile()
		if r, out := a.Commit(d); r != nil || len(out) > 0 {
			return r, out
		}
	}
	return nil, nil
}

// start lets an idle writer make its next request.
func (w *world) start(writer *writer) bool {
	if writer.busy {
		return false
	}
	r, out := nextRequest(writer.counter, w.may, func() {
		if w.addsWhilePlanned > 0 && w.rng.IntN(4) == 0 {
			w.addsWhilePlanned--
			writer.add(&occurrence.Occurrence{Weight: 1, Settled: w.awaited()}, w.event)
		}
	})
	writer.take(out)
	if r == nil {
		return len(out) > 0
	}
	writer.busy = true
	w.flights = append(w.flights, flight{writer, r})
	return true
}

// do has the server execute a request.
func do(s *sinktest.Server, r *Request) (*corev1.Event, error) {
	if r.Kind == Create {
		return s.Create(r.Name, r.Event)
	}
	return s.Patch(r.Name, r.Patch)
}

// answer reports the answer to the counter, as the sink does.
func answer(a *Counter, r *Request, object *corev1.Event, err error) []Settled {
	switch isRead := r.Kind == Read; {
	case err == nil && isRead:
		return a.Read(object)
	case err == nil:
		return a.Succeeded(r, object)
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		a.Stale()
	case apierrors.IsNotFound(err):
		return a.Gone(err)
	case apierrors.IsInvalid(err):
		return a.Refused(r, isRead, occurrence.Invalid, err)
	case apierrors.IsForbidden(err):
		return a.Refused(r, isRead, occurrence.Forbidden, err)
	case !isRead && !apierrors.IsTooManyRequests(err):
		a.Lost(r)
	}
	return nil
}

func (w *world) answer(f flight, object *corev1.Event, err error) {
	f.writer.take(answer(f.writer.counter, f.r, object, err))
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
		do(w.server, f.r)
		w.answer(f, nil, lost)
	case p < w.faults*3/4: // lost to the writer, but takes effect some time later
		w.late = append(w.late, f)
		w.answer(f, nil, lost)
	case p < w.faults:
		w.answer(f, nil, apierrors.NewTooManyRequests("later", 0))
	case refusals && p < w.faults+0.03:
		w.answer(f, nil, apierrors.NewInvalid(schema.GroupKind{Kind: "Event"}, "", nil))
	default:
		object, err := do(w.server, f.r)
		w.answer(f, object, err)
	}
}

// arrive lets one late request take effect, if it still can.
func (w *world) arrive() {
	if len(w.late) > 0 {
		i := w.rng.IntN(len(w.late))
		do(w.server, w.late[i].r)
		w.late = append(w.late[:i], w.late[i+1:]...)
	}
}

// expire deletes the Event. What a writer has in it without knowing so yet will
// be written to the next one too; that is what docs/counting.md excepts.
func (w *world) expire() {
	for _, e := range w.server.Objects {
		s, err := parseContributors(e.Annotations[Annotation])
		if err != nil {
			w.t.Fatal(err)
		}
		for _, writer := range w.writers {
			mine, _ := find(s.sinks, writer.instance)
			for _, e := range writer.counter.pending {
				if e.Sequence <= mine {
					w.slack += e.Weight
				}
			}
		}
	}
	// A late create could bring an expired Event back much later; the
	// apiserver's own time-outs are far shorter than any TTL.
	w.late = nil
	w.server.Expire()
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
		if n := len(writer.counter.pending); n > 0 {
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
				w.addsWhilePlanned = 50
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
							a.take(a.counter.Drop(a.sequence, occurrence.RetriesExhausted, nil))
						}
					}
				}
				w.settleDown()
				written, uncertain := w.check()
				counted := w.server.Counted()
				if counted < written || counted > written+uncertain+w.slack {
					t.Errorf("counted %d, written %d, uncertain %d, possibly on two objects %d", counted, written, uncertain, w.slack)
				}
				for _, writer := range w.writers {
					if n := writer.settled[occurrence.Replayed]; n != 0 && test.clients == 0 {
						t.Errorf("%d settled as replayed, though no client has reported anything", n)
					}
				}
				if uncertain != 0 && !test.giveUps && !test.refusals {
					t.Errorf("%d uncertain, though nobody gave up", uncertain)
				}
				if n := len(w.server.Objects); n > 1 && !test.refusals { // else one may have been left
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
		if counted := w.server.Counted(); counted != totals {
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
	if got, want := w.server.Counted(), int64(5*(maxClients+1)+2); got != want {
		t.Errorf("counted %d, want %d", got, want)
	}
}

func TestCountSaturates(t *testing.T) {
	w := newWorld(t, 1, 1, false)
	w.faults = 0
	w.writers[0].add(&occurrence.Occurrence{Weight: math.MaxInt32 + 1}, w.event)
	w.settleDown()
	if got := w.server.Counted(); got != math.MaxInt32 {
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
	if got := w.server.Counted(); got != math.MaxInt32+3 || written != got || len(w.server.Objects) != 2 {
		t.Errorf("counted %d, written %d, in %d Events", got, written, len(w.server.Objects))
	}
}

func TestForeignObjectIsLeftAlone(t *testing.T) {
	w := newWorld(t, 1, 2, false)
	w.faults = 0
	var foreign []*corev1.Event
	for suffix := range 2 {
		e := sinktest.Event(false)
		e.Name = identity.Name(e.InvolvedObject.Name, w.digest, suffix)
		e.Annotations = map[string]string{identity.Annotation: "another"}
		foreign = append(foreign, w.server.Store(e))
	}
	for range 5 {
		w.record()
		w.settleDown()
	}
	written, _ := w.check()
	for _, e := range foreign {
		if now := w.server.Objects[e.Name]; now.ResourceVersion != e.ResourceVersion {
			t.Errorf("foreign object %s was written", e.Name)
		}
	}
	ours := w.server.Objects[identity.Name("web-0", w.digest, 2)]
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
					do(w.server, f.r)
				}
				object, err := do(w.server, f.r)
				w.answer(f, object, err)
			}
		}
		w.settleDown()
	}
	written, uncertain := w.check()
	if counted := w.server.Counted(); counted != written || uncertain != 0 || w.writers[0].settled[occurrence.Replayed] != 0 {
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
					if f.r.Kind == Read {
						object, err := do(w.server, f.r)
						w.answer(f, object, err)
						continue
					}
					if test.effect {
						do(w.server, f.r)
					}
					w.answer(f, nil, lost)
				}
			}
			w.settleDown()
			written, uncertain := w.check()
			if counted := w.server.Counted(); counted != written || uncertain != 0 || written != maxSinks+1 {
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
	if got := w.server.Counted(); got != 40*10 {
		t.Errorf("counted %d, want %d", got, 40*10)
	}
}

// An entry says what any of its occurrences does.
func TestMergedEntryChangesAndIsAcknowledgedIfAnyOccurrenceIs(t *testing.T) {
	for _, first := range []bool{false, true} {
		for _, second := range []bool{false, true} {
			e := Entry{changes: first, Acknowledged: first}
			e.merge(&Entry{changes: second, Acknowledged: second})
			if want := first || second; e.changes != want || e.Acknowledged != want {
				t.Errorf("%t and %t: changes %t, acknowledged %t", first, second, e.changes, e.Acknowledged)
			}
		}
	}
}
