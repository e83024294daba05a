package counter

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/wire"
)

// replica is a process of a replicated world: what it has pending, and what it holds of others.
type replica struct {
	*writer
	dead    bool
	streams map[*replica]*stream // to followers
	ended   [][2]uint64          // cuts of streams that have ended: acknowledged, sent
	at      uint64               // position
	sent    uint64
	totals  map[string]uint64
	// holdings, adopted counters and up to where those have settled, each by contributor.
	held    map[Contributor]*holding
	adopted map[Contributor]*writer
	marks   map[Contributor]uint64
}

// stream leads from a leader to a follower. Its changes are encoded as they are on the wire.
type stream struct {
	changes, flying []change
	sent, acked     uint64
	flyingAt        uint64
}

// sent returns what arrives of a change.
func (c change) sent() (change, error) {
	var w wire.Writer
	if c.Whole == nil && c.Addition == nil {
		return c, nil
	}
	first, entries := c.Whole, c.Snapshot
	if c.Addition != nil {
		first, entries = c.Addition.Series, []EntryRecord{c.Addition.Entry}
	}
	if first != nil {
		first.Write(&w)
	}
	if err := WriteEntries(&w, entries); err != nil {
		return c, err
	}
	r := wire.NewReader(w.Bytes)
	if first != nil {
		first = ReadSeries(r)
	}
	if entries = ReadEntries(r); c.Addition != nil {
		c.Addition = &Addition{Series: first, Entry: entries[0], Merged: c.Addition.Merged}
	} else {
		c.Whole, c.Snapshot = first, entries
	}
	return c, r.Err()
}

// change is one change of what a contributor has pending, or all that it has pending.
type change struct {
	Whole         *Series
	Snapshot      []EntryRecord
	Addition      *Addition
	First, Second uint64
	Settled       []uint64
}

// holding is what a replica holds of a contributor, as of a position.
type holding struct {
	*Held
	at, upTo uint64
}

func newReplica(w *world) *replica {
	r := &replica{
		writer: newWriter(w.t, w.digest), streams: map[*replica]*stream{}, totals: map[string]uint64{},
		held: map[Contributor]*holding{}, adopted: map[Contributor]*writer{}, marks: map[Contributor]uint64{},
	}
	r.counter = New(r.instance, &occurrence.Target{Event: w.event, Name: w.event.InvolvedObject.Name}, r)
	r.onSettled = r.learn
	return r
}

// Added implements Journal, as the following methods do.
func (r *replica) Added(_ *Counter, a Addition) {
	r.record(change{Addition: &a})
}

func (r *replica) Joined(_ *Counter, first, second uint64) {
	r.record(change{First: first, Second: second})
}

func (r *replica) Settled(_ *Counter, sequences []uint64) { r.record(change{Settled: sequences}) }

func (r *replica) record(c change) {
	r.at++
	for _, s := range r.streams {
		s.changes = append(s.changes, c)
	}
}

func (r *replica) Keeps(first, second uint64) bool {
	keeps := func(acked, sent uint64) bool { return first <= sent && second > acked }
	for _, s := range r.streams {
		if keeps(s.acked, s.sent) {
			return true
		}
	}
	return slices.ContainsFunc(r.ended, func(e [2]uint64) bool { return keeps(e[0], e[1]) })
}

func (r *replica) Sent() uint64 { return r.sent }

func (r *replica) Counted(_ occurrence.Digest, event EventID, client Contributor) uint64 {
	return r.totals[fmt.Sprint(event, client)]
}

// learn records the totals of clients that are counted.
func (r *replica) learn(out []Settled) {
	for i := range out {
		out[i].Totals(func(client Contributor, total uint64) {
			key := fmt.Sprint(EventIDOf(out[i].End.Object), client)
			r.totals[key] = max(r.totals[key], total)
		})
	}
}

// connect begins a stream to a follower.
func (r *replica) connect(to *replica) {
	r.streams[to] = &stream{changes: []change{{Whole: r.counter.Series(), Snapshot: r.counter.Records()}}}
}

// disconnect ends a stream. A batch under way may still arrive.
func (r *replica) disconnect(to *replica, arrives bool) {
	s := r.streams[to]
	if arrives {
		r.deliver(to, false)
	}
	r.ended = append(r.ended, [2]uint64{s.acked, s.sent})
	delete(r.streams, to)
}

// batch sends all changes since the last batch.
func (r *replica) batch(to *replica) {
	s := r.streams[to]
	if s.flying == nil && len(s.changes) > 0 {
		s.flying, s.changes, s.flyingAt = s.changes, nil, r.at
		s.sent = r.sequence
		r.sent = max(r.sent, s.sent)
	}
}

// deliver applies a batch, and acknowledges it.
func (r *replica) deliver(to *replica, acknowledges bool) {
	s := r.streams[to]
	for _, c := range s.flying {
		arrived, err := c.sent()
		if err != nil {
			r.t.Fatal(err)
		}
		to.apply(r, arrived)
	}
	if h := to.held[r.instance]; s.flying != nil && h != nil {
		h.at, h.upTo = s.flyingAt, s.sent
		if acknowledges {
			s.acked = s.sent
		}
		r.mirrors(to, s)
	}
	s.flying = nil
}

// mirrors checks that a follower without changes under way has the entries of the contributor.
func (r *replica) mirrors(to *replica, s *stream) {
	r.t.Helper()
	if len(s.changes) > 0 {
		return
	}
	h := to.held[r.instance]
	size, bytes := 0, int64(0)
	for i := range h.entries {
		size += h.entries[i].Size()
		bytes += h.entries[i].Bytes
	}
	if size != h.size || bytes != h.Bytes() {
		r.t.Fatalf("held are %d entries and claims of %d bytes, not %d of %d", size, bytes, h.size, h.Bytes())
	}
	if pending := pendingBytes(r.counter); pending < h.Bytes() || r.counter.Size() != h.size {
		r.t.Fatalf("%d bytes of size %d are charged, and held %d of size %d", pending, r.counter.Size(), h.Bytes(), h.size)
	}
	pending, held := outline(r.counter.Records()), outline(h.Records())
	if pending != held {
		r.t.Fatalf("%s are held, and pending are %s", held, pending)
	}
}

// pendingBytes returns the memory that is charged for the entries of a counter.
func pendingBytes(c *Counter) (bytes int64) {
	for _, list := range [][]Entry{c.pending, c.late} {
		for i := range list {
			bytes += list[i].Bytes
		}
	}
	return bytes
}

// outline returns what entries have, except the contents of Events, which may have been one.
func outline(entries []EntryRecord) (out string) {
	for _, e := range entries {
		newest := e.Newest.Event
		e.Oldest, e.Newest, e.Labels, e.Annotations = Content{}, Content{}, nil, nil
		out += fmt.Sprint(e, newest.Message, newest.Labels, ";")
	}
	return out
}

func (r *replica) apply(from *replica, c change) {
	h := r.held[from.instance]
	var err error
	switch {
	case c.Whole != nil:
		h = &holding{Held: Hold(from.instance, *c.Whole)}
		for _, e := range c.Snapshot {
			if err == nil {
				err = h.Apply(e, false)
			}
		}
		r.held[from.instance] = h
	case c.Addition != nil:
		if (c.Addition.Series != nil) != (h.Len() == 0) {
			r.t.Fatalf("the series is %v, and %d entries are held", c.Addition.Series, h.Len())
		}
		err = h.Apply(c.Addition.Entry, c.Addition.Merged)
	case c.Settled != nil:
		err = h.Settle(c.Settled)
	default:
		err = h.Join(c.First, c.Second)
	}
	if err != nil {
		r.t.Fatalf("%+v: %v", c, err)
	}
}

// adopt begins to write what a replica holds, except what is known to have settled.
func (r *replica) adopt(h *holding, settled func([]Settled)) {
	contributor := h.contributor
	if contributor == r.instance || r.adopted[contributor] != nil {
		return
	}
	records := slices.DeleteFunc(h.Records(), func(e EntryRecord) bool { return e.Sequence <= r.marks[contributor] })
	if len(records) == 0 {
		return
	}
	a := newWriter(r.t, h.Series().Identity.Digest())
	a.instance, a.counter = contributor, Adopt(contributor, h.Series(), records, r)
	a.recorded = a.counter.weight()
	a.onSettled = func(out []Settled) {
		r.learn(out)
		settled(out)
		for i := range out {
			if out[i].End.Outcome != occurrence.HandedOver {
				r.marks[contributor] = max(r.marks[contributor], out[i].Sequence)
			}
		}
	}
	r.adopted[contributor] = a
}

// handOver ends adoptions that are not in work.
func (r *replica) handOver() {
	for contributor, a := range r.adopted {
		if !a.busy {
			a.take(a.counter.HandOver(a.counter.Last()))
			delete(r.adopted, contributor)
		}
	}
}

// shareOf returns the contribution of an instance to an Event.
func shareOf(e *corev1.Event, of Contributor) uint64 {
	if e == nil {
		return 0
	}
	s, err := parseContributors(e.Annotations[Annotation])
	if err != nil {
		return 0
	}
	share, _ := find(s.sinks, of)
	return share
}
