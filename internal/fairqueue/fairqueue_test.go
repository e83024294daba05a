package fairqueue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

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

// Whoever comes to a seat for which another tenant has many waiting is among the next.
func TestTenantThatFloodsDelaysAnotherByAFewTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newForTest(t, 1)
		release, ok := s.Acquire(t.Context(), shares.Flow{Tenant: "flood"})
		if !ok {
			t.Fatal("there is no seat")
		}
		var mu sync.Mutex
		var order []string
		var all sync.WaitGroup
		waits := func(tenant string) {
			all.Go(func() {
				s.Run(t.Context(), shares.Flow{Tenant: tenant}, func() {
					time.Sleep(time.Millisecond)
					mu.Lock()
					defer mu.Unlock()
					order = append(order, tenant)
				})
			})
		}
		for range 200 {
			waits("flood")
		}
		synctest.Wait()
		waits("other")
		synctest.Wait()
		release()
		all.Wait()
		at := 0
		for order[at] != "other" {
			at++
		}
		if len(order) != 201 || at > 2*HandSize {
			t.Errorf("the other is number %d of %d", at, len(order))
		}
	})
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
		release()
		if again, ok := s.Acquire(t.Context(), shares.Flow{Tenant: "b"}); !ok {
			t.Error("the seat is not free")
		} else {
			again()
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
