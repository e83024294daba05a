package delivery

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/eventd/eventd/internal/sleep"
	"github.com/eventd/eventd/pkg/receiver"
)

// behaviour is what a target does with a batch.
type behaviour int

const (
	accepts behaviour = iota
	fails             // 500
	throttles
	losesAnswer
	isSlow // 1 s
	hangs  // ignores its context
	behaviours
)

// target is a destination, with all that it was ever sent by any process.
type target struct {
	t    *testing.T
	mu   sync.Mutex
	rng  *rand.Rand
	odds float64 // of a fault
	// may are the faults.
	may []behaviour
	// poison is rejected: alone if it rejects in part, else with its batch.
	poison  map[string]bool
	partial bool
	// filtered reports whether a route has once filtered a version, or a list left it out. It may be
	// delivered after a later one, if it is read again: after a change of the routes, or from a cursor
	// that a former leader stored while the list was delivered, by another leader.
	filtered func(id string) bool

	seen       map[string]bool // by ID
	newest     map[types.UID]int
	times      []time.Time // of each record
	repeated   int
	unanswered int // records whose sender has no answer
}

func newTarget(t *testing.T, seed uint64) *target {
	return &target{t: t, rng: rand.New(rand.NewPCG(seed, 1)), poison: make(map[string]bool), seen: make(map[string]bool), newest: make(map[types.UID]int)}
}

func (g *target) draw() (behaviour, time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	took := time.Duration(g.rng.Int64N(int64(50 * time.Millisecond)))
	if len(g.may) == 0 || g.rng.Float64() >= g.odds {
		return accepts, took
	}
	switch b := g.may[g.rng.IntN(len(g.may))]; b {
	case isSlow:
		return b, time.Second
	case hangs:
		return b, time.Duration(g.rng.Int64N(int64(40 * time.Second)))
	default:
		return b, took
	}
}

// add stores a batch. late: its sender no longer leads.
func (g *target) add(batch []receiver.Record, late bool) (rejected int, refused bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, r := range batch {
		if g.poison[r.ID] {
			rejected++
		}
	}
	if rejected > 0 && !g.partial {
		return 0, true
	}
	for _, r := range batch {
		uid, rv := r.Event.UID, versionOf(r.Event)
		switch {
		case r.ID != string(uid)+"/"+r.Event.ResourceVersion || r.Cluster != "test" || r.Summarized > 0 && !isThrottled(uid):
			g.t.Errorf("version %s of %s is sent as %+v", r.Event.ResourceVersion, uid, r)
		case g.poison[r.ID]:
			continue
		case g.seen[r.ID]:
			g.repeated++
		case rv < g.newest[uid] && !late && !g.filtered(r.ID):
			g.t.Errorf("version %s was delivered after %d", r.ID, g.newest[uid])
		}
		g.seen[r.ID] = true
		g.newest[uid] = max(g.newest[uid], rv)
		g.times = append(g.times, time.Now())
	}
	return rejected, false
}

// since returns how many records came since a time.
func (g *target) since(t time.Time) (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, at := range g.times {
		if !at.Before(t) {
			n++
		}
	}
	return n
}

// sender is the receiver of one process.
type sender struct {
	*target
	leads, dead *atomic.Bool
	running     *atomic.Int64 // calls of this process to the target
	// sent are the IDs of versions that are no summaries.
	sent                         map[string]bool
	acked, summaries, summarized *atomic.Int64
}

// checkSummaries checks that a request has either summaries or versions, and summaries only of
// versions that were not sent: a stream that removes repetitions would remove them.
func (s *sender) checkSummaries(batch []receiver.Record) {
	for _, r := range batch {
		if r.Summarized > 0 != (batch[0].Summarized > 0) || r.Summarized > 0 && s.sent[r.ID] {
			s.t.Errorf("%s is sent as a summary of %d", r.ID, r.Summarized)
		}
		s.sent[r.ID] = s.sent[r.ID] || r.Summarized == 0
	}
}

func (s *sender) Send(ctx context.Context, batch []receiver.Record) (rejected int, err error) {
	if s.running.Add(1) != 1 {
		s.t.Error("two calls to a receiver at a time")
	}
	defer s.running.Add(-1)
	if !s.leads.Load() {
		s.t.Error("a process that does not lead has sent")
	}
	s.checkSummaries(batch)
	b, took := s.draw()
	switch b {
	case fails:
		return 0, errors.New("500")
	case throttles:
		return 0, &receiver.Error{RetryAfter: took * 100, Err: errors.New("429")}
	case hangs:
		time.Sleep(took)
	default:
		if sleep.For(ctx, took) != nil && took%2 == 0 {
			return 0, ctx.Err() // else it is there all the same
		}
	}
	if s.dead.Load() && took%4 == 1 {
		return 0, errors.New("its process was killed before it was written")
	}
	rejected, refused := s.add(batch, !s.leads.Load())
	switch {
	case refused:
		return 0, &receiver.Error{Permanent: true, Err: errors.New("400")}
	case b == losesAnswer || b == hangs && took%3 == 0:
		err = errors.New("no answer")
	}
	if err != nil || ctx.Err() != nil {
		s.mu.Lock()
		s.unanswered += len(batch)
		s.mu.Unlock()
	}
	switch {
	case err != nil:
	case batch[0].Summarized == 0:
		s.acked.Add(int64(len(batch) - rejected))
	default:
		s.summaries.Add(int64(len(batch) - rejected))
		for _, r := range batch {
			s.summarized.Add(int64(r.Summarized))
		}
	}
	return rejected, err
}

func (s *sender) Close() error {
	if s.running.Load() != 0 {
		s.t.Error("closed during a call")
	}
	return nil
}
