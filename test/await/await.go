// Package await holds the bounded waits of tests and tools: for conditions that
// nothing announces, which it polls, and for time to pass.
package await

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/eventd/eventd/internal/sleep"
)

// Timeout bounds the waits that name no other bound. It is far above what an idle machine needs,
// since tests also run on busy ones.
const Timeout = 2 * time.Minute

// Interval is the time between two tries. A suite whose tries start processes has a longer one.
var Interval = 10 * time.Millisecond

// Until polls ok until it returns true, and fails the test after Timeout.
func Until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	Within(t, Timeout, what, ok)
}

// Within is Until with another timeout.
func Within(t testing.TB, timeout time.Duration, what string, ok func() bool) {
	t.Helper()
	err := Success(t.Context(), timeout, func() error {
		if !ok() {
			return errors.New("condition not met")
		}
		return nil
	})
	if err != nil {
		t.Fatalf("not in time: %s (%v)", what, err)
	}
}

// Success calls try until it returns nil, and returns its last error when the timeout
// is over or ctx ends. An error that Permanent made is returned at once.
func Success(ctx context.Context, timeout time.Duration, try func() error) error {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		last := try()
		if last == nil || errors.As(last, new(permanent)) {
			return last
		}
		if Sleep(limited, Interval) == nil {
			continue
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%w (%w): %w", ctx.Err(), context.Cause(ctx), last)
		}
		return fmt.Errorf("not within %s: %w", timeout, last)
	}
}

// Permanent marks an error of Success that waiting cannot resolve.
func Permanent(err error) error { return permanent{err} }

type permanent struct{ error }

func (p permanent) Unwrap() error { return p.error }

// Sleep returns nil after d, or the cause of ctx if that ends first.
func Sleep(ctx context.Context, d time.Duration) error { return sleep.For(ctx, d) }

// Every calls do at once and then every d, in a goroutine of its own. end ends the
// context of do and waits for its return.
func Every(d time.Duration, do func(ctx context.Context)) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(d)
		defer tick.Stop()
		for ctx.Err() == nil {
			do(ctx)
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// Context ends after Timeout. It may be used in a cleanup, when the test's own
// context has ended.
func Context(t testing.TB) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(t.Context()), Timeout)
}
