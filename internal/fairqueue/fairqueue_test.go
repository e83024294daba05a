package fairqueue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"github.com/eventd/eventd/internal/shares"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newForTest(t *testing.T, count int) *Seats {
	t.Helper()
	s, err := New("test", count, 1000, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestNamespacesOfATenantAreFewFlows(t *testing.T) {
	s, hashes := newForTest(t, 1), map[uint64]bool{}
	for i := range 1000 {
		hashes[s.hash(shares.Flow{Tenant: "a", Namespace: fmt.Sprint(i)})] = true
	}
	if len(hashes) != namespaceFlows {
		t.Errorf("there are %d flows", len(hashes))
	}
}

// Whoever comes to a seat or a turn for which another tenant, or another user of the tenant, has many waiting is among
// the next.
func TestTenantOrUserThatFloodsDelaysAnotherByAFewTurns(t *testing.T) {
	type run func(ctx context.Context, f shares.Flow, execute func()) bool
	for name, start := range map[string]func(t *testing.T) (*Seats, run){
		"a seat": func(t *testing.T) (*Seats, run) {
			s := newForTest(t, 1)
			return s, s.Run
		},
		"a turn": func(t *testing.T) (*Seats, run) {
			turns, err := NewTurns("test", 1, 1, 1, 1000)
			if err != nil {
				t.Fatal(err)
			}
			return turns.seats, turns.Run
		},
	} {
		for of, flows := range map[string]struct{ flood, other shares.Flow }{
			"another tenant": {shares.Flow{Tenant: "a"}, shares.Flow{Tenant: "b"}},
			"another user":   {shares.Flow{Tenant: "a", User: "a1"}, shares.Flow{Tenant: "a", User: "a2"}},
		} {
			t.Run(name+", "+of, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					seats, run := start(t)
					release, ok := seats.Acquire(t.Context(), flows.flood)
					if !ok {
						t.Fatal("there is no seat")
					}
					var mu sync.Mutex
					var order []shares.Flow
					var all sync.WaitGroup
					waits := func(f shares.Flow) {
						all.Go(func() {
							run(t.Context(), f, func() {
								time.Sleep(time.Millisecond)
								mu.Lock()
								defer mu.Unlock()
								order = append(order, f)
							})
						})
					}
					for range 200 {
						waits(flows.flood)
					}
					synctest.Wait()
					waits(flows.other)
					synctest.Wait()
					release()
					all.Wait()
					at := 0
					for order[at] != flows.other {
						at++
					}
					if len(order) != 201 || at > 2*HandSize {
						t.Errorf("the other is number %d of %d", at, len(order))
					}
					if left := len(seats.users.of); left != 0 {
						t.Errorf("%d users are left", left)
					}
				})
			})
		}
	}
}

func TestWhoLeavesHasNoSeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newForTest(t, 1)
		release, _ := s.Acquire(t.Context(), shares.Flow{Tenant: "a"})
		ctx, leave := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { leave(errors.New("gone")) })
		if _, ok := s.Acquire(ctx, shares.Flow{Tenant: "b"}); ok {
			t.Error("there were two seats")
		}
		release()
		if again, ok := s.Acquire(t.Context(), shares.Flow{Tenant: "b"}); !ok {
			t.Error("the seat is not free")
		} else {
			again()
		}
	})
}

// Who leaves while waiting for a place of the user takes no place from those who have one.
func TestWhoLeavesHasNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, f := newForTest(t, 1), shares.Flow{Tenant: "a", User: "a1"}
		release, _ := s.Acquire(t.Context(), shares.Flow{Tenant: "b"})
		var all sync.WaitGroup
		ran := 0
		for range userLength {
			all.Go(func() { s.Run(t.Context(), f, func() { ran++ }) })
		}
		synctest.Wait()
		ctx, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		if s.Run(ctx, f, func() { t.Error("one who has left is run") }) {
			t.Error("one who has left is said to have run")
		}
		release()
		all.Wait()
		if ran != userLength || len(s.users.of) != 0 {
			t.Errorf("%d have run, and %d users are left", ran, len(s.users.of))
		}
	})
}

// Who does not wait takes no seat from those who do: not even in the moment in which it is free, before the
// next of them has it.
func TestSeatIsNotTakenAheadOfThoseWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newForTest(t, 2)
		try := func(when string, want bool) {
			t.Helper()
			release, ok := s.TryAcquire()
			if ok != want {
				t.Errorf("%s: a seat is had at once: %t, want %t", when, ok, want)
			}
			if ok {
				release()
			}
		}
		try("nobody waits", true)
		if !s.Run(t.Context(), shares.Flow{Tenant: "a"}, func() { try("while somebody has the other", true) }) {
			t.Error("refused")
		}
		try("after it", true)

		first, _ := s.TryAcquire()
		second, _ := s.TryAcquire()
		waiting, leave := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() { s.Run(waiting, shares.Flow{Tenant: "a"}, func() { t.Error("it had no seat") }) })
		synctest.Wait()
		if n := s.queued.Load(); n != 1 {
			t.Errorf("%d wait", n)
		}
		leave()
		all.Wait()
		first()
		second()
		try("after it has left", true)

		s.queued.Add(1) // between the end of one and the begin of the next
		try("while somebody waits", false)
		s.queued.Add(-1)
	})
}

// As many run at once as there are seats, and as many of a flow wait as its queues hold. The others are refused. Who
// leaves a queue, or has left it without a seat, has no seat and does not wait.
func TestWhoRunsWhoWaitsAndWhoIsRefused(t *testing.T) {
	for name, withoutQueues := range map[string]bool{"seats taken through the queues": false, "seats taken without them": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const count, queueLength = 3, 2
				waiting := prometheus.NewGauge(prometheus.GaugeOpts{})
				s, err := New("test", count, queueLength, waiting)
				if err != nil {
					t.Fatal(err)
				}
				want := func(what string, value float64) {
					t.Helper()
					synctest.Wait()
					if got := testutil.ToFloat64(waiting); got != value {
						t.Errorf("%s: %v wait, want %v", what, got, value)
					}
				}
				end := make(chan struct{})
				var all sync.WaitGroup
				left := 0 // those who have left the queues without a seat
				for range count {
					if withoutQueues {
						release, _ := s.TryAcquire()
						all.Go(func() { <-end; release() })
						left++
					} else {
						all.Go(func() { s.Run(t.Context(), shares.Flow{Tenant: "a"}, func() { <-end }) })
					}
				}
				want("all run", 0)
				ctx, leave := context.WithCancel(t.Context())
				fits := left + HandSize*queueLength
				for range fits {
					all.Go(func() {
						if s.Run(ctx, shares.Flow{Tenant: "a"}, func() { t.Error("one who has left is run") }) {
							t.Error("one who has left is said to have run")
						}
					})
				}
				want("as many as fit", float64(fits))
				for range 3 {
					if s.Run(t.Context(), shares.Flow{Tenant: "a"}, func() { t.Error("one more is run") }) {
						t.Error("one more is said to have run")
					}
					if _, ok := s.Acquire(t.Context(), shares.Flow{Tenant: "a"}); ok {
						t.Error("one more has a seat")
					}
				}
				want("after those who are refused", float64(fits))
				leave()
				want("after all have left", 0)
				close(end)
				all.Wait()
				if release, ok := s.TryAcquire(); !ok {
					t.Error("no seat is free at the end")
				} else {
					release()
				}
			})
		})
	}
}

// A seat for which somebody has waited is free when its release returns.
func TestSeatThatWasWaitedForIsFreeAfterItsRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newForTest(t, 1)
		for range 100 {
			first, _ := s.TryAcquire()
			time.AfterFunc(time.Second, first)
			release, ok := s.Acquire(t.Context(), shares.Flow{Tenant: "a"})
			if !ok {
				t.Fatal("there is no seat")
			}
			release()
			again, ok := s.TryAcquire()
			if !ok {
				t.Fatal("the seat is not free")
			}
			again()
		}
	})
}

// A panic, such as that of a handler, which its server recovers, takes no seat away.
func TestPanicFreesItsSeat(t *testing.T) {
	s := newForTest(t, 1)
	func() {
		defer func() { _ = recover() }()
		s.Run(t.Context(), shares.Flow{Tenant: "a"}, func() { panic("broken") })
	}()
	if release, ok := s.TryAcquire(); !ok {
		t.Fatal("the seat is not free")
	} else {
		release()
	}
	if !s.Run(t.Context(), shares.Flow{Tenant: "b"}, func() {}) {
		t.Error("refused")
	}
}
