package counter

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/test/sinktest"
)

var (
	errTooMany   = apierrors.NewTooManyRequests("later", 0)
	errLost      = apierrors.NewInternalError(errors.New("lost"))
	errInvalid   = apierrors.NewInvalid(schema.GroupKind{Kind: "Event"}, "", nil)
	errForbidden = apierrors.NewForbidden(sinktest.EventsResource, "", nil)
	errConflict  = apierrors.NewConflict(sinktest.EventsResource, "", nil)
	errExists    = apierrors.NewAlreadyExists(sinktest.EventsResource, "")
	errNotFound  = apierrors.NewNotFound(sinktest.EventsResource, "")
)

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
	// The rest is that of a scenario: the writer that acts, how what was added has ended,
	// and what the Events of squatters said when they were made.
	ours     *writer
	ends     []*occurrence.Settlement
	squatted int64
	// addsWhilePlanned is how often an occurrence is added while a request is planned.
	addsWhilePlanned int
	// onWrite is called with an Event before and after a write, if it is not nil.
	onWrite func(by *writer, before, after *corev1.Event)
}

func newWorld(t *testing.T, seed uint64, writers int, newStyle bool) *world {
	event := sinktest.Event(newStyle)
	w := &world{
		t: t, rng: rand.New(rand.NewPCG(seed, 0)), server: sinktest.NewServer(),
		event: event, digest: identity.Of(event), clients: map[string]int64{}, faults: 0.3, may: Access{Change: true},
	}
	for range writers {
		w.writers = append(w.writers, newWriter(t, w.digest))
	}
	w.ours = w.writers[0]
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

// start lets an idle writer make its next request. It reports whether anything happened.
func (w *world) start(writer *writer) bool {
	c := writer.counter
	for !writer.busy && len(c.pending) > 0 {
		d, out := c.Begin(w.may)
		var r *Request
		if d != nil {
			w.addMeanwhile(writer)
			d.Plan()
			w.addMeanwhile(writer)
			r, out = c.Commit(d)
		}
		if writer.take(out); r != nil {
			if r.Kind != Create && !w.may.Change {
				w.t.Errorf("a %s, which is forbidden", r.Kind)
			}
			if r.Kind != Read {
				writer.wants(r)
			}
			writer.busy = true
			w.flights = append(w.flights, flight{writer, r})
		}
		if r != nil || len(out) > 0 {
			return true
		}
	}
	return false
}

func (w *world) addMeanwhile(writer *writer) {
	if w.addsWhilePlanned > 0 && w.rng.IntN(4) == 0 {
		w.addsWhilePlanned--
		writer.add(&occurrence.Occurrence{Weight: 1, Settled: w.awaited()}, w.event)
	}
}

// do has the server execute a request.
func (w *world) do(f flight) (after *corev1.Event, err error) {
	before := w.server.Objects[f.r.Name]
	if f.r.Kind == Create {
		after, err = w.server.Create(f.r.Name, f.r.Event)
	} else {
		after, err = w.server.Patch(f.r.Name, f.r.Patch)
	}
	if err == nil && f.r.Kind != Read && w.onWrite != nil {
		w.onWrite(f.writer, before, after)
	}
	return after, err
}

// land has the server execute a request, whose answer arrives.
func (w *world) land(f flight) {
	object, err := w.do(f)
	w.answer(f, object, err)
}

// answer reports an answer to the counter, as the sink does.
func (w *world) answer(f flight, object *corev1.Event, err error) {
	c, isRead, private := f.writer.counter, f.r.Kind == Read, f.writer.counter.isExclusive()
	if object != nil {
		f.writer.seen[object.ResourceVersion] = countOf(object)
	}
	var out []Settled
	switch {
	case err == nil && isRead:
		if out = c.Read(object); !private {
			f.writer.wantsOnlyWhatIsSaid(out, object)
		}
	case err == nil:
		out = c.Succeeded(f.r, object)
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		c.Stale()
	case apierrors.IsNotFound(err):
		out = c.Gone(err)
	case apierrors.IsInvalid(err):
		out = c.Refused(f.r, isRead, occurrence.Invalid, err)
	case apierrors.IsForbidden(err):
		out = c.Refused(f.r, isRead, occurrence.Forbidden, err)
	case !isRead && !apierrors.IsTooManyRequests(err):
		c.Lost(f.r)
	}
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
	switch p := w.rng.Float64(); {
	case p < w.faults/4: // lost on the way there
		w.answer(f, nil, errLost)
	case p < w.faults/2: // takes effect, and the answer is lost
		w.do(f)
		w.answer(f, nil, errLost)
	case p < w.faults*3/4: // lost to the writer, but takes effect some time later
		w.late = append(w.late, f)
		w.answer(f, nil, errLost)
	case p < w.faults:
		w.answer(f, nil, errTooMany)
	case refusals && p < w.faults+0.03:
		w.answer(f, nil, errInvalid)
	default:
		w.land(f)
	}
}

// arrive lets one late request take effect, if it still can.
func (w *world) arrive() {
	if len(w.late) > 0 {
		i := w.rng.IntN(len(w.late))
		w.do(w.late[i])
		w.late = append(w.late[:i], w.late[i+1:]...)
	}
}

// expire deletes all Events. What a writer has in one without knowing so yet will be
// written to the next one too; that is what docs/counting.md excepts.
func (w *world) expire() {
	for _, writer := range w.writers {
		written := []uint64{writer.counter.carried} // at most, where no annotation says it
		if !w.server.Strips {
			written = written[:0]
			for _, e := range w.server.Objects {
				s, err := parseContributors(e.Annotations[Annotation])
				if err != nil {
					w.t.Fatal(err)
				}
				mine, _ := find(s.sinks, writer.instance)
				written = append(written, mine)
			}
		}
		for _, e := range writer.counter.pending {
			for _, upTo := range written {
				if e.Sequence <= upTo {
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

// check fails unless everything has settled.
func (w *world) check() (written, uncertain int64) {
	w.t.Helper()
	for _, writer := range w.writers {
		writer.take(nil)
		written += writer.written()
		uncertain += writer.settled[occurrence.Uncertain]
		if n := len(writer.counter.pending); n > 0 {
			w.t.Errorf("%d entries pending at the end", n)
		}
	}
	return written, uncertain
}

// random is what happens at random, beside requests whose answers are lost or late.
type random struct {
	name             string
	writers, clients int // at least 3 writers
	may              Access
	then             *Access // from the middle on, if it is set
	refusals         bool    // the apiserver refuses some writes
	expiry, strips   bool
	inDoubt          bool                  // some may be uncertain though nobody gives up
	report           func(*world)          // called most often; nil for record and report
	drop             func(*world, *writer) // called for idle writers, may be nil
	after            func(*world)          // called after each thing, may be nil
}

// run lets 200 things happen and then everything settle. No occurrence may be lost, or
// be counted twice but for those that are on two objects or uncertain.
func (r *random) run(t *testing.T, seed uint64, newStyle bool) *world {
	w := newWorld(t, seed, max(3, r.writers), newStyle)
	w.may, w.server.Strips = r.may, r.strips
	if r.report == nil {
		w.addsWhilePlanned = 50
	}
	for i := range 200 {
		if i == 100 && r.then != nil {
			w.may = *r.then
		}
		writer := w.writers[w.rng.IntN(len(w.writers))]
		switch n := w.rng.IntN(100); {
		case n < 25 && r.report != nil:
			r.report(w)
		case n < 25 && w.rng.IntN(2) == 0 && r.clients > 0:
			w.report(r.clients)
		case n < 25:
			w.record()
		case n < 55:
			w.start(writer)
		case n < 90:
			w.finish(r.refusals)
		case n < 95:
			w.arrive()
		case n < 97 && r.expiry:
			w.expire()
		case n < 99 && r.drop != nil && !writer.busy:
			r.drop(w, writer)
		}
		if r.after != nil {
			r.after(w)
		}
	}
	w.settleDown()
	written, uncertain := w.check()
	if counted := w.server.Counted(); counted < written || counted > written+uncertain+w.slack {
		t.Errorf("counted %d, written %d, uncertain %d, possibly on two objects %d", counted, written, uncertain, w.slack)
	}
	if uncertain != 0 && r.drop == nil && !r.refusals && !r.inDoubt {
		t.Errorf("%d uncertain, though nobody gave up", uncertain)
	}
	return w
}
