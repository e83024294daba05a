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

	"github.com/eventd/eventd/test/fakelock"
	"github.com/eventd/eventd/test/seeds"
)

// model is some electors whose requests fail in all ways for a while. Some of them
// are stopped and started.
type model struct {
	t        *testing.T
	random   *rand.Rand
	store    *fakelock.Store
	replicas []*replica
	reported []atomic.Pointer[Leader] // last argument of OnNewLeader, by replica
	calm     chan struct{}            // closed when requests stop failing
}

func TestNeverTwoLeadersAndAlwaysOneAgain(t *testing.T) {
	runs, terms := 0, 0
	for seed := range seeds.Of(60) {
		runs++
		synctest.Test(t, func(t *testing.T) { terms += newModel(t, seed).run() })
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	t.Logf("%d terms in %d runs", terms, runs)
	if terms < 3*runs {
		t.Errorf("%d terms in %d runs try too little", terms, runs)
	}
}

func newModel(t *testing.T, seed uint64) *model {
	m := &model{t: t, random: rand.New(rand.NewPCG(seed, 0)), store: fakelock.NewStore(), reported: make([]atomic.Pointer[Leader], 4), calm: make(chan struct{})}
	for n := range m.reported {
		m.reported[n].Store(&Leader{})
		lock := newLock(m.store, "lease", fmt.Sprint(n))
		r := newReplica(t, lock, func(o *Options) {
			if n < 3 {
				o.Watch = m.store.Watch
			}
			o.OnNewLeader = func(l Leader) { m.reported[n].Store(&l) }
		})
		r.finish = m.upTo(2 * time.Second)
		lock.Intercept(m.intercept(rand.New(rand.NewPCG(seed, uint64(n)+1))))
		m.replicas = append(m.replicas, r)
	}
	return m
}

func (m *model) upTo(d time.Duration) time.Duration { return time.Duration(m.random.Int64N(int64(d))) }

// intercept makes requests fail or arrive late.
func (m *model) intercept(random *rand.Rand) fakelock.Interceptor {
	// In a bad period most requests fail, otherwise few.
	var until time.Time
	bad := false
	return func(ctx context.Context, op fakelock.Operation, send func() error) error {
		select {
		case <-m.calm:
			return send()
		default:
		}
		if time.Now().After(until) {
			bad = random.IntN(3) == 0
			until = time.Now().Add(time.Duration(random.Int64N(int64(20 * time.Second))))
		}
		if p := random.IntN(100); !bad && p < 85 || bad && p < 10 {
			return send()
		}
		return m.fail(ctx, op, send, random)
	}
}

func (m *model) fail(ctx context.Context, op fakelock.Operation, send func() error, random *rand.Rand) error {
	late := time.After(time.Duration(random.Int64N(int64(20 * time.Second))))
	waitLate := func() {
		select {
		case <-late:
		case <-m.calm:
		}
	}
	switch random.IntN(7) {
	case 0:
		return fakelock.ErrBroken
	case 1:
		return fakelock.LoseAnswer(ctx, op, send)
	case 2:
		return fakelock.Hang(ctx, op, send)
	case 3: // answered late, or after the context has ended
		err := send()
		select {
		case <-late:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	case 4: // arrives late, and ignores its context
		return fakelock.Before(waitLate)(ctx, op, send)
	case 5: // arrives late, after the caller has returned
		return fakelock.Late(waitLate)(ctx, op, send)
	default: // arrives late, and is not answered
		waitLate()
		_ = send()
		return io.ErrUnexpectedEOF
	}
}

// run returns the number of terms.
func (m *model) run() (terms int) {
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
		terms += r.led()
	}
	return terms
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

// recover requires a leader in time after requests have stopped failing: within a
// lease duration after the last write, plus a retry period to read it.
func (m *model) recover() {
	limit := time.Now().Add(15*time.Second + 2400*time.Millisecond)
	for m.step() == 0 {
		if time.Now().After(limit) {
			m.t.Fatal("no leader again in time")
		}
	}
	m.requireKnown()
}

// requireKnown requires that all replicas report the leader after a renewal and a read.
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
		reported, l := *m.reported[n].Load(), r.Leader()
		if l.Identity != leader.Identity() || reported != l {
			m.t.Fatalf("%d leads, the leader of %d is %+v, reported %+v", i, n, l, reported)
		}
	}
}
