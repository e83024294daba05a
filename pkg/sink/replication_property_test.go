package sink

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/test/seeds"
)

// history is a random history of some replicas with few series.
type history struct {
	*rand.Rand
	t        *testing.T
	all      []*replica
	leader   *replica
	crashed  bool
	slow     bool // followers read slowly, so they are late
	log      []string
	recorded int64
	accepted atomic.Int64 // or reported as counted
	refused  atomic.Int64
}

func (h *history) note(format string, args ...any) {
	h.log = append(h.log, fmt.Sprintf(format, args...))
}

func (h *history) index(r *replica) int {
	for i, other := range h.all {
		if other == r {
			return i
		}
	}
	return -1
}

// record records some occurrences, deferred or not, on the leader.
func (h *history) record() {
	n := 1 + h.IntN(4)
	h.note("record %d", n)
	for range n {
		delay := time.Duration(h.IntN(2)) * time.Duration(h.IntN(5000)) * time.Millisecond
		h.recorded++
		h.leader.recordLater(h.IntN(3), delay, h.await)
	}
}

func (h *history) await(o *occurrence.Occurrence) {
	o.Deferred = func() { h.accepted.Add(1) }
	o.Settled = func(end occurrence.Settlement) {
		switch {
		case end.Counted():
			h.accepted.Add(1)
		case end.Reason == occurrence.NotReplicated:
			h.refused.Add(1)
		}
	}
}

// connect has each replica follow the leader that does not.
func (h *history) connect() {
	h.note("connect to %d", h.index(h.leader))
	for _, r := range h.all {
		if r != h.leader && r.leader != h.leader {
			if r.leader = h.leader; r.session != nil {
				r.session.end()
			}
			here, there := h.pipe()
			r.session = r.followOver(h.leader, here, there)
		}
	}
}

// pipe returns both ends of a session. The first one is the follower's.
func (h *history) pipe() (here, there io.ReadWriteCloser) {
	end, there := net.Pipe()
	if !h.slow {
		return end, there
	}
	late := &slow{Conn: end}
	late.takes.Store(int64(h.IntN(1000)) * int64(time.Millisecond))
	return late, there
}

// disconnect ends a session.
func (h *history) disconnect() {
	r := h.all[h.IntN(len(h.all))]
	if h.note("disconnect %d", h.index(r)); r.session != nil {
		r.session.end()
		r.session, r.leader = nil, nil
	}
}

func (h *history) elect() {
	next := h.all[h.IntN(len(h.all))]
	h.note("elect %d", h.index(next))
	h.leader.SetLeading(false)
	h.leader = next
	next.disconnect()
	next.SetLeading(true)
}

func (r *replica) disconnect() {
	if r.session != nil {
		r.session.end()
	}
	r.session, r.leader = nil, nil
}

// crash ends the leader, and elects another one.
func (h *history) crash() {
	if h.crashed {
		return
	}
	h.note("crash %d", h.index(h.leader))
	h.crashed = true
	h.leader.crash()
	i := h.index(h.leader)
	h.all = append(h.all[:i:i], h.all[i+1:]...)
	for _, r := range h.all {
		if r.leader == h.leader {
			r.disconnect()
		}
	}
	h.leader = h.all[0]
	h.leader.disconnect()
	h.leader.SetLeading(true)
}

// fail has a replica's requests or their answers get lost, or no longer.
func (h *history) fail() {
	r := h.all[h.IntN(len(h.all))]
	down, mute := h.IntN(4) == 0, h.IntN(3) == 0
	h.note("line of %d: %t %t", h.index(r), down, mute)
	r.line.down.Store(down)
	r.line.mute.Store(mute)
}

func (h *history) wait() {
	d := time.Duration(h.ExpFloat64() * float64(time.Second))
	h.note("wait %v", d)
	pass(d)
}

func (h *history) run(steps int) {
	h.connect()
	for range steps {
		switch n := h.IntN(20); {
		case n < 8:
			h.record()
		case n < 12:
			h.wait()
		case n < 14:
			h.connect()
		case n < 15:
			h.disconnect()
		case n < 17:
			h.elect()
		case n < 19:
			h.fail()
		default:
			h.crash()
		}
		synctest.Wait()
	}
	for _, r := range h.all {
		r.line.down.Store(false)
		r.line.mute.Store(false)
	}
	h.connect()
	pass(time.Hour)
}

// Whatever happens, what was accepted is counted, what was refused is not, and nothing is counted twice. One replica crashes
// at most.
func TestNothingAcceptedIsLostUnderAnyHistory(t *testing.T) {
	for seed := range seeds.Of(250) {
		f := &fake{takes: time.Duration(seed%3) * 20 * time.Millisecond}
		replicas(t, 3, f, func(o *Options) { o.OtherReplica = func() bool { return true } }, func(t *testing.T, all []*replica) {
			h := &history{Rand: rand.New(rand.NewPCG(seed, 18)), t: t, all: all, leader: all[0], slow: seed%2 == 1}
			h.run(60)
			var uncertain int64
			for _, r := range h.all {
				totals := r.ledger.Totals()
				uncertain += totals.Outcomes[occurrence.Uncertain]
				if totals.Pending() != 0 {
					t.Errorf("%d pending: %+v", totals.Pending(), totals)
				}
				r.wantHeld(0)
			}
			accepted := h.accepted.Load()
			h.recorded -= h.refused.Load() // that is never counted
			switch counted := f.server.Counted(); {
			case uncertain > 0:
				t.Errorf("%d are uncertain", uncertain)
			case counted < accepted || counted > h.recorded:
				t.Errorf("counted %d of %d that were accepted and %d recorded", counted, accepted, h.recorded)
			case !h.crashed && counted != h.recorded:
				t.Errorf("counted %d of %d", counted, h.recorded)
			}
			if t.Failed() {
				t.Log(h.log)
			}
		})
		if t.Failed() {
			t.Fatalf("history %d", seed)
		}
	}
}
