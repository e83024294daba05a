package election

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/eventd/eventd/test/fakelock"
)

func TestPlannedStopFinishesTheWorkThenReleasesThenReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, a, b := twoReplicas(t)
		a.finish = 30 * time.Second // twice the lease: it has to be renewed meanwhile
		stopped := time.Now()
		a.stop()
		for time.Since(stopped) < a.finish-time.Second {
			elapse(time.Second)
			requireHolder(t, s, "a")
			requireStandby(t, b)
			if !a.Leading() || a.lastTerm().Err() == nil {
				t.Fatalf("leads: %t, and its work is cancelled by: %v", a.Leading(), a.lastTerm().Err())
			}
		}
		a.end()
		if took := time.Since(stopped); took != a.finish {
			t.Errorf("the stop took %s", took)
		}
		requireHolder(t, s, "") // by the time that Run returns
		requireStandby(t, a)
	})
}

// The Lease must not be free while Leading is still true.
func TestNobodyLeadsWhenTheReleaseIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, a := oneReplica(t)
		requests := 0
		a.lock.Intercept(fakelock.Before(func() {
			requests++
			if a.Leading() || a.lastTerm().Err() == nil {
				t.Error("leads while it releases")
			}
		}))
		a.end()
		requireHolder(t, s, "")
		if requests != 2 {
			t.Errorf("released with %d requests", requests)
		}
	})
}

func requireWithin(t *testing.T, limit, took time.Duration) {
	t.Helper()
	if took > limit {
		t.Errorf("it took %s, and may take %s", took, limit)
	}
}

func TestReleaseThatFailsIsBoundedInTime(t *testing.T) {
	each(t, map[string]fakelock.Interceptor{
		"refused": fakelock.Fail, "hanging": fakelock.Hang, "update hangs": fakelock.Only(fakelock.Update, fakelock.Hang),
	}, func(t *testing.T, fails fakelock.Interceptor) {
		s, a, b := twoReplicas(t)
		a.lock.Intercept(fails)
		requireWithin(t, a.options.ReleaseTimeout, a.end())
		requireHolder(t, s, "a")
		elapse(a.options.LeaseDuration + 2*time.Second)
		requireLeader(t, b)
	})
}

func TestRunReturnsAlthoughTheLockNeverDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		letGo := make(chan struct{})
		_, a, b := twoReplicas(t)
		a.lock.Intercept(fakelock.Block(letGo))
		elapse(10 * time.Second)
		requireStandby(t, a)
		requireWithin(t, a.options.ReleaseTimeout+eventTimeout, a.end())
		elapse(8 * time.Second)
		requireLeader(t, b)
		close(letGo)
		elapse(time.Second)
		requireLeader(t, b)
	})
}

func TestReleaseContinuesAfterAConflictAndALostAnswer(t *testing.T) {
	each(t, disturbances, func(t *testing.T, disturb func(*fakelock.Store) fakelock.Interceptor) {
		s, a := oneReplica(t)
		a.lock.Intercept(fakelock.Only(fakelock.Update, fakelock.Once(disturb(s))))
		a.end()
		requireHolder(t, s, "")
	})
}

func TestReleaseThatIsAlwaysInConflictIsNotTriedWithoutAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a := oneReplica(t)
		tried := 0
		a.lock.Intercept(fakelock.Only(fakelock.Update, func(_ context.Context, _ fakelock.Operation, send func() error) error {
			if tried++; tried > 1000 {
				return send()
			}
			return apierrors.NewConflict(leases, "lease", fakelock.ErrBroken)
		}))
		a.end()
		synctest.Wait() // for the last call: the time may be over while it is on its way
		if limit := int(a.options.ReleaseTimeout/releaseRetry) + 2; tried > limit {
			t.Errorf("tried %d times, and %d are enough", tried, limit)
		}
	})
}

func TestReleaseDoesNotClearWhoComesBetweenItsReadAndItsWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, a := oneReplica(t)
		a.lock.Intercept(fakelock.Only(fakelock.Update, fakelock.Before(func() { forceHolder(s, "b") })))
		a.end()
		requireHolder(t, s, "b")
	})
}

// Watch and OnNewLeader are code of the caller.
func TestStopAbandonsCallbacksThatDoNotReturn(t *testing.T) {
	each(t, map[string]func(o *Options, end <-chan struct{}){
		"watch": func(o *Options, end <-chan struct{}) {
			o.Watch = func(context.Context, func()) error { <-end; return nil }
		},
		"newLeader": func(o *Options, end <-chan struct{}) { o.OnNewLeader = func(Leader) { <-end } },
	}, func(t *testing.T, hang func(*Options, <-chan struct{})) {
		end := make(chan struct{})
		defer close(end)
		s, a := oneReplica(t, func(o *Options) { hang(o, end) })
		elapse(time.Minute)
		requireLeader(t, a)
		requireWithin(t, callbackTimeout, a.end())
		requireHolder(t, s, "")
	})
}
