package fairqueue

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eventd/eventd/internal/shares"
)

// A turn counts as long as its work and its pause, which does not end with its context.
func TestTurnsTakeTheirPartOfTheTime(t *testing.T) {
	const took = 10 * time.Millisecond
	for _, test := range []struct {
		count, rest, turns int
		want               time.Duration
	}{
		{count: 1, rest: 0, turns: 1, want: took},
		{count: 1, rest: 1, turns: 1, want: 2 * took},
		{count: 1, rest: 3, turns: 1, want: 4 * took},
		{count: 1, rest: 3, turns: 2, want: 8 * took},
		{count: 2, rest: 3, turns: 2, want: 4 * took},
		{count: 2, rest: 3, turns: 4, want: 8 * took},
	} {
		synctest.Test(t, func(t *testing.T) {
			turns, err := NewTurns("test", test.count, test.rest, 1000)
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			var all sync.WaitGroup
			for range test.turns {
				all.Go(func() {
					ctx, leave := context.WithCancel(t.Context())
					if !turns.Run(ctx, shares.Flow{Tenant: "a"}, func() { time.Sleep(took); leave() }) {
						t.Error("refused")
					}
				})
			}
			all.Wait()
			if got := time.Since(began); got != test.want {
				t.Errorf("%+v: they took %v", test, got)
			}
		})
	}
}

// Nothing is done for who has left before.
func TestTurnOfWhoHasLeftIsNotTaken(t *testing.T) {
	turns, err := NewTurns("test", 1, 1, 1000)
	if err != nil {
		t.Fatal(err)
	}
	ctx, leave := context.WithCancel(t.Context())
	leave()
	if turns.Run(ctx, shares.Flow{Tenant: "a"}, func() { t.Error("the work is done") }) {
		t.Error("it is said to be done")
	}
}
