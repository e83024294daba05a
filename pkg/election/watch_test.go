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

	"github.com/eventd/eventd/test/fakelock"
)

type watch = func(ctx context.Context, changed func()) error

func silent(ctx context.Context, _ func()) error {
	<-ctx.Done()
	return ctx.Err()
}

func failing(err error) watch {
	return func(context.Context, func()) error { return err }
}

// hinting hints without end.
func hinting(every time.Duration) watch {
	return func(ctx context.Context, changed func()) error {
		for ctx.Err() == nil {
			changed()
			time.Sleep(every)
		}
		return nil
	}
}

func TestWatchThatIsSilentOrEndsOrHintsWithoutEndChangesNothing(t *testing.T) {
	each(t, map[string]watch{
		"silent":       silent,
		"ends at once": failing(fakelock.ErrBroken),
		"always hints": hinting(50 * time.Millisecond),
	}, func(t *testing.T, w watch) {
		_, a, b := twoReplicas(t, func(o *Options) { o.Watch = w })
		elapse(time.Minute)
		requireLeader(t, a)
		requireStandby(t, b)
		a.lock.Intercept(fakelock.Fail)
		elapse(10 * time.Second)
		requireStandby(t, a)
		elapse(8 * time.Second)
		requireLeader(t, b)
	})
}

func TestWatchThatEndsIsRestartedWithGrowingWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var begun []time.Time
		_, a := oneReplica(t, func(o *Options) {
			o.Watch = func(context.Context, func()) error {
				begun = append(begun, time.Now())
				return fakelock.ErrBroken
			}
		})
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
		var now atomic.Value // the watch as it is from now on
		forbidden := failing(apierrors.NewForbidden(leases, "lease", errors.New("no right to watch")))
		now.Store(forbidden)
		_, a := oneReplica(t, func(o *Options) {
			o.Watch = func(ctx context.Context, changed func()) error { return now.Load().(watch)(ctx, changed) }
		})
		for _, phase := range []struct {
			watch watch
			lasts time.Duration
			want  []string // in the line that is logged
		}{
			{forbidden, time.Minute, []string{"Cannot watch the lease", "no right to watch", "by reads only"}},
			{forbidden, 10 * time.Minute, nil},
			{failing(fakelock.ErrBroken), time.Minute, []string{"Cannot watch the lease", "broken"}},
			{failing(nil), time.Minute, []string{"Cannot watch the lease", "before the first event"}},
			{silent, 15*time.Second + maxWatchWait, []string{"Cannot watch the lease", "no watch event"}},
			{func(_ context.Context, changed func()) error { // works, for a moment
				changed()
				return fakelock.ErrBroken
			}, time.Minute, nil},
			{failing(fakelock.ErrBroken), time.Minute, []string{"Cannot watch the lease", "broken"}},
		} {
			now.Store(phase.watch)
			elapse(phase.lasts)
			a.logged.require(t, phase.want...)
		}
	})
}
