package election

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/eventd/eventd/test/fakelock"
)

func TestWatchThatIsSilentOrEndsOrHintsWithoutEndChangesNothing(t *testing.T) {
	for name, watch := range map[string]func(context.Context, func()) error{
		"silent":       func(ctx context.Context, _ func()) error { <-ctx.Done(); return ctx.Err() },
		"ends at once": func(context.Context, func()) error { return fakelock.ErrBroken },
		"always hints": func(ctx context.Context, changed func()) error {
			for ctx.Err() == nil {
				changed()
				time.Sleep(50 * time.Millisecond)
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, a, b := twoReplicas(t, func(o *Options) { o.Watch = watch })
				elapse(time.Minute)
				requireLeader(t, a)
				requireStandby(t, b)
				a.lock.Intercept(fakelock.Fail)
				elapse(10 * time.Second)
				requireStandby(t, a)
				elapse(8 * time.Second)
				requireLeader(t, b)
				b.end()
				a.stop()
				<-a.result
			})
		})
	}
}

func TestWatchThatEndsIsRestartedWithGrowingWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var begun []time.Time
		s := fakelock.NewStore()
		a := newReplica(t, newLock(s, "lease", "a"), func(o *Options) {
			o.Watch = func(context.Context, func()) error {
				begun = append(begun, time.Now())
				return fakelock.ErrBroken
			}
		}).start()
		elapse(time.Minute)
		a.end()
		if first := begun[1].Sub(begun[0]); first > minWatchWait {
			t.Errorf("the first wait is %s", first)
		}
		if n := len(begun); n < 15 || n > 40 {
			t.Errorf("begun %d times in a minute", n)
		}
		if restarts := testutil.ToFloat64(a.metrics.watchRestarts); restarts != float64(len(begun)-1) && restarts != float64(len(begun)) {
			t.Errorf("%v restarts are counted of %d", restarts, len(begun))
		}
	})
}

// Otherwise nobody notices that a Role lacks the right to watch.
func TestWatchThatDoesNotWorkIsLoggedOnceForEachReasonUntilOneWorks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logged := &log{}
		type watch = func(ctx context.Context, changed func()) error
		var now atomic.Value // the watch as it is from now on
		a := newReplica(t, newLock(fakelock.NewStore(), "lease", "a"), func(o *Options) {
			o.Watch = func(ctx context.Context, changed func()) error { return now.Load().(watch)(ctx, changed) }
		})
		failing := func(err error) watch {
			return func(context.Context, func()) error { return err }
		}
		forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "leases"}, "lease", errors.New("no right to watch"))
		now.Store(failing(forbidden))
		a.startIn(logged.context(t.Context()))
		elapse(time.Minute)
		logged.require(t, "Cannot watch the lease", "no right to watch", "by reads only")
		elapse(10 * time.Minute)
		logged.require(t)

		now.Store(failing(fakelock.ErrBroken))
		elapse(time.Minute)
		logged.require(t, "Cannot watch the lease", "broken")
		now.Store(failing(nil))
		elapse(time.Minute)
		logged.require(t, "Cannot watch the lease", "before the first event")
		now.Store(func(ctx context.Context, _ func()) error { <-ctx.Done(); return ctx.Err() })
		elapse(time.Minute)
		logged.require(t, "Cannot watch the lease", "no watch event")

		now.Store(func(_ context.Context, changed func()) error { // works, for a moment
			changed()
			return fakelock.ErrBroken
		})
		elapse(time.Minute)
		logged.require(t)
		now.Store(failing(fakelock.ErrBroken))
		elapse(time.Minute)
		logged.require(t, "Cannot watch the lease", "broken")
		a.end()
	})
}

func TestSilentWatchIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var begun atomic.Int32
		s := fakelock.NewStore()
		a := newReplica(t, newLock(s, "lease", "a"), func(o *Options) {
			o.Watch = func(ctx context.Context, _ func()) error {
				begun.Add(1)
				<-ctx.Done()
				return nil
			}
		}).start()
		elapse(15*time.Second - 1)
		if begun.Load() != 1 {
			t.Errorf("begun %d times within a lease", begun.Load())
		}
		elapse(time.Second)
		if begun.Load() != 2 {
			t.Errorf("begun %d times after a silent lease", begun.Load())
		}
		a.end()
	})
}
