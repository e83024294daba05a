package timing

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestPaceIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		next := 0
		err := Paced(t.Context(), 1000, time.Second, func(i int) {
			due := time.Duration(i) * time.Millisecond
			if late := time.Since(start) - due; i != next || late < -time.Millisecond || late > 0 {
				t.Fatalf("%d comes as number %d, %v late", i, next, late)
			}
			next++
		})
		if next != 1000 || err != nil {
			t.Errorf("it ends after %d: %v", next, err)
		}
	})
}

func TestPaceEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		given := errors.New("given up")
		for _, over := range []time.Duration{0, time.Hour} {
			ctx, cancel := context.WithCancelCause(t.Context())
			calls := 0
			err := Paced(ctx, 1000, over, func(int) {
				if calls++; calls == 10 {
					cancel(given)
				}
			})
			if calls != 10 || !errors.Is(err, given) {
				t.Errorf("over %s: %d calls, %v", over, calls, err)
			}
		}
	})
}

func TestPercentile(t *testing.T) {
	times := make([]time.Duration, 200)
	for i := range times {
		times[i] = time.Duration(i + 1)
	}
	for n, want := range map[int]time.Duration{1: 2, 50: 100, 99: 198, 100: 200} {
		if got := Percentile(times, n); got != want {
			t.Errorf("p%d is %d, want %d", n, got, want)
		}
	}
	if got := Percentile(times[:1], 50); got != 1 {
		t.Errorf("p50 of one is %d", got)
	}
}
