package counter

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/test/seeds"
)

// replicated is a world of three replicas. One of them leads: it records, and the others follow.
type replicated struct {
	*world
	all                    []*replica
	leader                 *replica
	crashes, others, drops int // that may still happen
	clock                  uint64
	// recorded is what each contributor has recorded. excused are sequences that it, or who
	// has adopted it, has given up; acked is up to where a follower has confirmed.
	recorded map[Contributor]map[uint64]int64
	excused  map[Contributor]map[uint64]bool
	acked    map[Contributor]uint64
	// highest are the highest shares, of each Event and of all.
	highest map[types.UID]map[Contributor]uint64
	ever    map[Contributor]uint64
}

func newReplicated(t *testing.T, seed uint64, others int) *replicated {
	w := &replicated{
		world: newWorld(t, seed, 1, seed%2 == 0), crashes: 1, others: others,
		recorded: map[Contributor]map[uint64]int64{}, excused: map[Contributor]map[uint64]bool{},
		acked: map[Contributor]uint64{}, ever: map[Contributor]uint64{}, highest: map[types.UID]map[Contributor]uint64{},
	}
	w.onWrite = w.wrote
	for range 3 {
		r := newReplica(w.world)
		r.onSettled = func(out []Settled) { r.learn(out); w.settled(r.instance, out) }
		w.all = append(w.all, r)
	}
	w.lead(w.all[0])
	return w
}

// report has a client raise its total, or repeat it: to a leader that has not heard of it before,
// it reports all.
func (w *replicated) report(client string, more int64) {
	by := w.leader.writer
	w.clients[client] = max(1, w.clients[client]+more)
	total := w.clients[client]
	weight := total - by.views[client]
	if weight == 0 {
		weight = total
	}
	by.views[client] = total
	w.clock++
	by.addAt(w.clock, &occurrence.Occurrence{Weight: weight, Client: client, Total: total, Settled: w.awaited()}, w.event)
}

// record adds an occurrence of a writer.
func (w *replicated) record(by *writer) {
	o := &occurrence.Occurrence{Weight: 1 + w.rng.Int64N(3), Settled: w.awaited()}
	w.clock += 1 + w.rng.Uint64N(3)
	if w.recorded[by.instance] == nil {
		w.recorded[by.instance], w.excused[by.instance] = map[uint64]int64{}, map[uint64]bool{}
	}
	w.recorded[by.instance][w.clock] = o.Weight
	by.addAt(w.clock, o, w.event)
}

// wrote checks a write: it adds what the contributor has recorded above its share, once.
func (w *replicated) wrote(by *writer, before, after *corev1.Event) {
	c, added := by.instance, countOf(after)
	if before != nil {
		added -= countOf(before)
	}
	if w.highest[after.UID] == nil {
		w.highest[after.UID] = map[Contributor]uint64{}
	}
	least, most := int64(0), int64(0)
	from, to := w.highest[after.UID][c], shareOf(after, c)
	for n, weight := range w.recorded[c] {
		if from < n && n <= to {
			most += weight
			if w.ever[c] < n && !w.excused[c][n] {
				least += weight
			}
		}
	}
	if added < least || added > most {
		w.t.Fatalf("a write in the name of %s from %d to %d adds %d, not %d to %d", c, from, to, added, least, most)
	}
	w.highest[after.UID][c], w.ever[c] = max(from, to), max(w.ever[c], to)
}

// settled excuses what is given up.
func (w *replicated) settled(c Contributor, out []Settled) {
	for i := range out {
		if end := out[i].End.Outcome; end == occurrence.Uncertain || end == occurrence.Dropped {
			for n := range w.recorded[c] {
				w.excused[c][n] = w.excused[c][n] || w.ever[c] < n && n <= out[i].Sequence
			}
		}
	}
}

// alive returns the replicas that live, without one of them.
func (w *replicated) alive(without *replica) (out []*replica) {
	for _, r := range w.all {
		if !r.dead && r != without {
			out = append(out, r)
		}
	}
	return out
}

func (w *replicated) lead(r *replica) {
	w.leader = r
	for _, f := range w.alive(r) {
		r.connect(f)
	}
}

// elect has another replica lead. The former leader dies, or writes on.
func (w *replicated) elect() {
	old := w.leader
	for f := range old.streams {
		old.disconnect(f, w.rng.IntN(2) == 0)
	}
	if w.crashes > 0 && w.rng.IntN(3) > 0 {
		w.crashes--
		old.dead = true
		w.flights = slices.DeleteFunc(w.flights, func(f flight) bool {
			if !slices.Contains(old.writers(), f.writer) {
				return false
			}
			if w.rng.IntN(2) == 0 {
				w.late = append(w.late, f)
			}
			return true
		})
	}
	others := w.alive(old)
	w.lead(others[w.rng.IntN(len(others))])
}

// writers returns what a replica writes for.
func (r *replica) writers() []*writer {
	return slices.AppendSeq([]*writer{r.writer}, maps.Values(r.adopted))
}

// lookAfter has the leader adopt the newest holdings, and the others hand theirs over.
func (w *replicated) lookAfter() {
	for _, r := range w.alive(w.leader) {
		r.handOver()
		for c, h := range r.held {
			if own := w.leader.held[c]; c != w.leader.instance && (own == nil || own.at < h.at) {
				w.leader.held[c] = h
			}
		}
	}
	for c, h := range w.leader.held {
		if a := w.leader.adopted[c]; a != nil && !a.busy && len(a.counter.pending) == 0 {
			delete(w.leader.adopted, c)
		}
		w.leader.adopt(h, func(out []Settled) { w.settled(c, out) })
	}
}

// active returns everybody who writes.
func (w *replicated) active() (out []*writer) {
	for _, r := range w.alive(nil) {
		out = append(out, r.writers()...)
	}
	return out
}

// pushOut has eight others write the Event.
func (w *replicated) pushOut() {
	for range maxSinks {
		other := newWriter(w.t, w.digest)
		for w.record(other); len(other.counter.pending) > 0; {
			w.start(other)
			last := len(w.flights) - 1
			f := w.flights[last]
			w.flights = w.flights[:last]
			w.land(f)
		}
	}
}

// stream does something with one of the leader's streams.
func (w *replicated) stream() {
	for _, f := range w.alive(w.leader) {
		s, n := w.leader.streams[f], w.rng.IntN(20)
		switch {
		case s == nil:
			w.leader.connect(f)
		case n < 8:
			w.leader.batch(f)
		case n < 16:
			w.leader.deliver(f, true)
			w.acked[w.leader.instance] = max(w.acked[w.leader.instance], s.acked)
			w.leader.counter.Acknowledge(s.acked)
		case n < 17:
			w.leader.disconnect(f, w.rng.IntN(2) == 0)
		}
	}
}

// run lets many things happen and then everything settle.
func (w *replicated) run(expiry bool, reports int) {
	w.addsWhilePlanned = 0
	for range 300 {
		w.lookAfter()
		active := w.active()
		switch n := w.rng.IntN(100); {
		case n < 25 && reports > 0:
			w.report(fmt.Sprint("client-", w.rng.IntN(reports)), w.rng.Int64N(3))
		case n < 25:
			w.record(w.leader.writer)
		case n < 45:
			w.start(active[w.rng.IntN(len(active))])
		case n < 65:
			w.finish(false)
		case n < 70:
			w.arrive()
		case n < 95:
			w.stream()
		case n < 97:
			w.elect()
		case n < 98 && w.others > 0:
			w.others--
			w.pushOut()
		case n < 98 && w.drops > 0:
			if r := w.all[w.rng.IntN(len(w.all))]; !r.dead && !r.busy {
				w.drops--
				giveUp(w.world, r.writer)
			}
		case n < 99 && expiry:
			w.late = nil
			w.server.Expire()
		}
	}
	w.settleDown()
}

func (w *replicated) settleDown() {
	w.faults = 0
	for len(w.late) > 0 {
		w.arrive()
	}
	for i := 0; i < 1000; i++ {
		w.lookAfter()
		moved := len(w.flights) > 0
		for _, a := range w.active() {
			moved = w.start(a) || moved
		}
		w.finish(false)
		if !moved {
			return
		}
	}
	w.t.Fatal("the replicas do not settle")
}

// check fails if an occurrence is lost whose contributor lives or that a follower has confirmed.
func (w *replicated) check() {
	for _, r := range w.all {
		for n := range w.recorded[r.instance] {
			if n > w.ever[r.instance] && !w.excused[r.instance][n] && (!r.dead || n <= w.acked[r.instance]) {
				w.t.Errorf("%d of %s is lost: its share is %d (dead: %t, confirmed up to %d)", n, r.instance, w.ever[r.instance], r.dead, w.acked[r.instance])
			}
		}
	}
}

// Whoever writes what a contributor has pending, and however often it dies, follows and leads again:
// each occurrence is counted once.
func TestReplicasCountOnce(t *testing.T) {
	for name, test := range map[string]struct {
		expiry        bool
		others, drops int
	}{
		"crashes": {}, "expiry": {expiry: true}, "others": {others: 1}, "many others": {others: 3}, "drops": {drops: 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found, excused := int64(0), 0
			for seed := range seeds.Of(150) {
				w := newReplicated(t, seed, test.others)
				w.drops = test.drops
				w.run(test.expiry, 0)
				w.check()
				for _, r := range w.all {
					found += r.writer.settled[occurrence.Found]
					excused += len(w.excused[r.instance])
				}
				if n := len(w.server.Objects); n > 1 {
					t.Errorf("%d Events", n)
				}
				if t.Failed() {
					t.Fatalf("seed %d", seed)
				}
			}
			t.Logf("%d found, %d excused", found, excused)
		})
	}
}

// A client that has no answer reports its total again to the next leader. What the former one has pending
// of it, and who writes that, does not matter.
func TestReplicasCountClientsOnce(t *testing.T) {
	for seed := range seeds.Of(150) {
		w := newReplicated(t, seed, 0)
		w.onWrite = nil // it is the totals that must be right
		w.run(false, maxClients)
		var sum int64
		for client, total := range w.clients {
			w.report(client, 0)
			sum += total
		}
		w.settleDown()
		if counted := w.server.Counted(); counted != sum || len(w.server.Objects) > 1 || t.Failed() {
			t.Fatalf("seed %d: %d counted on %d Events, clients have reported %d", seed, counted, len(w.server.Objects), sum)
		}
	}
}
