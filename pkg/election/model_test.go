package election

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

// seeds is how many runs of the model there are per set of locks.
const seeds = 150

// model is a number of electors whose requests fail in all ways, until they do
// no more, while some are stopped and started.
type model struct {
	t        *testing.T
	random   *rand.Rand
	store    *store
	replicas []*replica
	told     []atomic.Pointer[Leader] // what OnNewLeader of each was called with last
	calm     chan struct{}            // closed when requests do not fail any more
}

// lockSets are elections that there are: with one Lease, and the two mixtures
// while an election moves from one Lease to another.
var lockSets = map[string]func(s *store, n int) (resourcelock.Interface, []*memoryLock){
	"one lease": func(s *store, n int) (resourcelock.Interface, []*memoryLock) {
		l := newLock(s, "lease", fmt.Sprint(n))
		return l, []*memoryLock{l}
	},
	"old lease and both": func(s *store, n int) (resourcelock.Interface, []*memoryLock) {
		both, before, after := moving(s, fmt.Sprint(n))
		if n%2 == 0 {
			return before, []*memoryLock{before}
		}
		return both, []*memoryLock{before, after}
	},
	"both and new lease": func(s *store, n int) (resourcelock.Interface, []*memoryLock) {
		both, before, after := moving(s, fmt.Sprint(n))
		if n%2 == 0 {
			return after, []*memoryLock{after}
		}
		return both, []*memoryLock{before, after}
	},
}

func TestNeverTwoLeadersAndAlwaysOneAgain(t *testing.T) {
	klog.SetLogger(logr.Discard())
	defer klog.ClearLogger()
	for name, locks := range lockSets {
		t.Run(name, func(t *testing.T) {
			terms := 0
			for seed := range uint64(seeds) {
				synctest.Test(t, func(t *testing.T) {
					m := newModel(t, seed, locks)
					m.run()
					for _, r := range m.replicas {
						terms += r.led()
					}
				})
				if t.Failed() {
					t.Fatalf("seed %d", seed)
				}
			}
			t.Logf("%d terms in %d runs", terms, seeds)
			if terms < 3*seeds {
				t.Errorf("%d terms in %d runs try too little", terms, seeds)
			}
		})
	}
}

func newModel(t *testing.T, seed uint64, locks func(*store, int) (resourcelock.Interface, []*memoryLock)) *model {
	m := &model{t: t, random: rand.New(rand.NewPCG(seed, 0)), store: newStore(), told: make([]atomic.Pointer[Leader], 4), calm: make(chan struct{})}
	for n := range m.told {
		m.told[n].Store(&Leader{})
		lock, memory := locks(m.store, n)
		r := newReplica(t, memory[0], func(o *Options) {
			o.Lock = lock
			if n < 3 {
				o.Watch = m.store.watcher
			}
			o.OnNewLeader = func(l Leader) { m.told[n].Store(&l) }
		})
		r.finish = m.upTo(2 * time.Second)
		for _, l := range memory {
			l.obstruct(m.way(rand.New(rand.NewPCG(seed, uint64(n)+1))))
		}
		m.replicas = append(m.replicas, r)
	}
	return m
}

func (m *model) upTo(d time.Duration) time.Duration { return time.Duration(m.random.Int64N(int64(d))) }

// way makes a request fail, or be late, in one of all ways.
func (m *model) way(random *rand.Rand) way {
	// In a bad spell most requests fail, else few.
	var until time.Time
	bad := false
	return func(ctx context.Context, op operation, ask func() error) error {
		select {
		case <-m.calm:
			return ask()
		default:
		}
		if time.Now().After(until) {
			bad = random.IntN(3) == 0
			until = time.Now().Add(time.Duration(random.Int64N(int64(20 * time.Second))))
		}
		if p := random.IntN(100); !bad && p < 85 || bad && p < 10 {
			return ask()
		}
		return m.fail(ctx, op, ask, random)
	}
}

func (m *model) fail(ctx context.Context, op operation, ask func() error, random *rand.Rand) error {
	late := time.After(time.Duration(random.Int64N(int64(20 * time.Second))))
	switch random.IntN(7) {
	case 0:
		return errBroken
	case 1:
		return answerLost(ctx, op, ask)
	case 2:
		return hanging(ctx, op, ask)
	case 3: // answered late, or not any more
		err := ask()
		select {
		case <-late:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	case 4: // arrives late, though nobody waits for it any more
		select {
		case <-late:
		case <-m.calm:
		}
		return ask()
	case 5: // as above, and its caller does not wait for it
		return abandoned(ctx, func() error {
			select {
			case <-late:
			case <-m.calm:
			}
			return ask()
		})
	default: // arrives late, and is not answered
		select {
		case <-late:
		case <-m.calm:
		}
		_ = ask()
		return io.ErrUnexpectedEOF
	}
}

func (m *model) run() {
	for _, r := range m.replicas {
		time.Sleep(m.upTo(3 * time.Second))
		r.start()
	}
	end := time.Now().Add(3 * time.Minute)
	for time.Now().Before(end) {
		if m.random.IntN(1000) == 0 {
			m.restart(m.replicas[m.random.IntN(len(m.replicas))])
		}
		m.step()
	}
	close(m.calm)
	m.recover()
	for _, r := range m.replicas {
		r.end()
	}
}

// restart stops a replica in order, and starts it again.
func (m *model) restart(r *replica) {
	r.stop()
	for stopped := false; !stopped; {
		select {
		case <-r.result:
			stopped = true
		default:
			m.step()
		}
	}
	r.start()
}

// step lets a little time pass and counts the leaders.
func (m *model) step() int {
	time.Sleep(m.upTo(40 * time.Millisecond))
	leaders := 0
	for _, r := range m.replicas {
		if r.Leading() {
			leaders++
		}
	}
	if leaders > 1 {
		m.t.Fatalf("%d leaders", leaders)
	}
	return leaders
}

// recover requires a leader in time once nothing fails any more: the duration of
// a lease after what was written last, which is seen a retry period later, and
// for two Leases that disagree, once more.
func (m *model) recover() {
	limit := time.Now().Add(15*time.Second + 2*2400*time.Millisecond)
	for m.step() == 0 {
		if time.Now().After(limit) {
			m.t.Fatal("no leader again in time")
		}
	}
	m.requireKnown()
}

// requireKnown requires that everybody knows who leads, when that has renewed and
// they have read, and was told. Only who holds both Leases must not believe one
// of them that the other one does not agree with.
func (m *model) requireKnown() {
	for limit := time.Now().Add(5 * time.Second); time.Now().Before(limit); {
		m.step()
	}
	i := slices.IndexFunc(m.replicas, func(r *replica) bool { return r.Leading() })
	if i < 0 {
		m.t.Fatal("there is no leader any more")
	}
	leader := m.replicas[i]
	for n, r := range m.replicas {
		told, l := *m.told[n].Load(), r.Leader()
		if told == l && l == (Leader{}) && isMulti(r) && !isMulti(leader) {
			continue
		}
		if l.Identity != leader.Identity() || told != l {
			m.t.Fatalf("%d leads, and %d says that %+v does, and was told of %+v", i, n, l, told)
		}
	}
}

func isMulti(r *replica) bool {
	_, multi := r.calls.lock.(*MultiLock)
	return multi
}
