package fairqueue

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eventd/eventd/internal/shares"
)

// A turn counts as long as its work and its pause, which does not end with its context. Who has had a turn does not wait
// for its pause.
func TestTurnsTakeTheirPartOfTheTime(t *testing.T) {
	const took = 10 * time.Millisecond
	for _, test := range []struct {
		count, ofTenant, rest, turns int
		tenants                      int
		want                         time.Duration
	}{
		{count: 1, ofTenant: 1, rest: 0, turns: 1, tenants: 1, want: took},
		{count: 1, ofTenant: 1, rest: 1, turns: 1, tenants: 1, want: took},
		{count: 1, ofTenant: 1, rest: 3, turns: 1, tenants: 1, want: took},
		{count: 1, ofTenant: 1, rest: 3, turns: 2, tenants: 1, want: 5 * took},
		{count: 1, ofTenant: 1, rest: 3, turns: 2, tenants: 2, want: 5 * took},
		{count: 2, ofTenant: 1, rest: 3, turns: 2, tenants: 2, want: took},
		{count: 2, ofTenant: 1, rest: 3, turns: 4, tenants: 2, want: 5 * took},
		{count: 2, ofTenant: 1, rest: 3, turns: 4, tenants: 1, want: 13 * took},
		{count: 2, ofTenant: 2, rest: 3, turns: 4, tenants: 1, want: 5 * took},
	} {
		synctest.Test(t, func(t *testing.T) {
			turns, err := NewTurns("test", test.count, test.ofTenant, test.rest, 1000)
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			var all sync.WaitGroup
			for i := range test.turns {
				all.Go(func() {
					ctx, leave := context.WithCancel(t.Context())
					if !turns.Run(ctx, shares.Flow{Tenant: string(rune('a' + i%test.tenants))}, func() { time.Sleep(took); leave() }) {
						t.Error("refused")
					}
				})
			}
			all.Wait()
			if got := time.Since(began); got != test.want {
				t.Errorf("%+v: they took %v", test, got)
			}
			time.Sleep(10 * took) // until the pauses are over
		})
	}
}

// Nothing is done for who has left before.
func TestTurnOfWhoHasLeftIsNotTaken(t *testing.T) {
	turns, err := NewTurns("test", 1, 1, 1, 1000)
	if err != nil {
		t.Fatal(err)
	}
	ctx, leave := context.WithCancel(t.Context())
	leave()
	if turns.Run(ctx, shares.Flow{Tenant: "a"}, func() { t.Error("the work is done") }) {
		t.Error("it is said to be done")
	}
}

// Neither another tenant nor another user waits for all turns of one user.
func TestManyTurnsOfAUserDelayOthersByOne(t *testing.T) {
	const took = 10 * time.Millisecond
	for _, test := range []struct {
		flow shares.Flow
		most time.Duration
	}{{shares.Flow{Tenant: "b"}, 0}, {shares.Flow{Tenant: "a", User: "other"}, 4 * took}} {
		synctest.Test(t, func(t *testing.T) {
			turns, err := NewTurns("test", 2, 1, 3, 1000)
			if err != nil {
				t.Fatal(err)
			}
			var many sync.WaitGroup
			for range 50 {
				many.Go(func() {
					turns.Run(t.Context(), shares.Flow{Tenant: "a", User: "many"}, func() { time.Sleep(took) })
				})
			}
			time.Sleep(took / 2)
			began := time.Now()
			if !turns.Run(t.Context(), test.flow, func() {
				if waited := time.Since(began); waited > test.most {
					t.Errorf("%+v: waited %v", test.flow, waited)
				}
			}) {
				t.Errorf("%+v: refused", test.flow)
			}
			many.Wait()
			time.Sleep(10 * took) // until the pauses are over
		})
	}
}
