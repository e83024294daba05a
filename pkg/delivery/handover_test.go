package delivery

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/eventd/eventd/internal/sleep"
	"github.com/eventd/eventd/pkg/config/v1alpha1"
	"github.com/eventd/eventd/pkg/receiver"
)

var errConnectionLost = errors.New("connection lost")

// failsOnce returns the fault of one call to the apiserver.
func failsOnce() func(context.Context) error {
	failed := false
	return func(context.Context) error {
		if failed {
			return nil
		}
		failed = true
		return errConnectionLost
	}
}

// A leader hands over while the destination has taken a batch, and has not answered. Only this batch is
// delivered again, whether the apiserver is well, slow, or fails once.
func TestAHandoverRepeatsOneBatchAtMost(t *testing.T) {
	slow := func(ctx context.Context) error {
		if sleep.For(ctx, handoverTimeout*3/10) != nil {
			return ctx.Err()
		}
		return nil
	}
	for name, test := range map[string]struct {
		during        func(context.Context) error // before and after the effect of each call
		before, after func(context.Context) error // of calls from the handover on, unless during is set
	}{
		"the apiserver is well":            {},
		"the apiserver is slow":            {during: slow},
		"the apiserver loses a connection": {before: failsOnce()},
		"the apiserver loses an answer":    {after: failsOnce()},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				hands, taken, repeated := false, map[string]bool{}, 0
				b.sends["a"] = func(ctx context.Context, batch []receiver.Record) (int, error) {
					b.mu.Lock()
					unanswered := hands
					for _, r := range batch {
						if taken[r.ID] {
							repeated++
						}
						taken[r.ID] = true
					}
					b.mu.Unlock()
					if unanswered {
						<-ctx.Done()
					}
					return 0, ctx.Err()
				}
				a := v1alpha1.Receiver{Name: "a", BatchSize: new(int32(10))}
				b.apply(a)
				b.begin()
				time.Sleep(2 * cursorInterval)
				b.set(func() { b.client.before, b.client.after = test.during, test.during })
				for range 20 { // for 0.4 s: a slow write is stored by then, and not answered
					b.write("e", 10)
				}
				b.set(func() {
					hands = true
					if test.during == nil {
						b.client.before, b.client.after = test.before, test.after
					}
				})
				b.write("e", 10)
				if took := b.end(errors.New("handover")); took > 3*time.Second {
					t.Errorf("the handover took %s", took)
				}
				b.set(func() { hands, b.client.before, b.client.after = false, nil, nil })
				b.renew()
				b.apply(a)
				b.begin()
				if s := b.status("a"); s.Delivered != 10 || repeated != 10 {
					t.Errorf("the next leader has delivered %d, and %d of all again, want 10", s.Delivered, repeated)
				}
				b.end(nil)
			})
		})
	}
}

// The last write fails, and another process leads before it is repeated.
func TestTheLastWriteIsNotRepeatedOnceAnotherLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := &configMapClient{of: &memoryConfigMap{}}
		c := newTestCursors(t, client, "x")
		c.advance("x", at(0, "10"))
		calls, leads := 0, true
		c.leading = func() bool { return leads }
		client.before = func(context.Context) error {
			calls++
			leads = false
			return errConnectionLost
		}
		c.writeLast(quiet(t))
		if failed := testutil.ToFloat64(c.metrics.failed); calls != 1 || failed != 1 {
			t.Errorf("%d calls, %v failed", calls, failed)
		}
	})
}
