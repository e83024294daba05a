package election

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/eventd/eventd/test/fakelock"
)

// requireNothingDone requires that the work was not begun, and that the Lease is free.
func requireNothingDone(t *testing.T, s *fakelock.Store, r *replica) {
	t.Helper()
	requireHolder(t, s, "")
	if r.led() != 0 {
		t.Error("the work was begun")
	}
}

// A cancelled HTTP request returns although the server may have received it.
func TestAcquisitionThatIsOnItsWayAtAStopIsWaitedForAndReleased(t *testing.T) {
	for op, held := range map[fakelock.Operation]*record{fakelock.Create: nil, fakelock.Update: {}} {
		synctest.Test(t, func(t *testing.T) {
			s := fakelock.NewStore()
			if held != nil {
				s.Set("lease", *held)
			}
			l := newLock(s, "lease", "a")
			l.Intercept(fakelock.Only(op, fakelock.Once(fakelock.Late(func() { time.Sleep(20 * time.Millisecond) }))))
			a := newReplica(t, l).start()
			a.end()
			elapse(time.Second)
			requireNothingDone(t, s, a)
		})
	}
}

// The apiserver hangs from the acquisition on.
func TestStopOfAStandbyTakesNoLongerThanARelease(t *testing.T) {
	each(t, map[string]func(<-chan struct{}) fakelock.Interceptor{
		"until its context is over": func(<-chan struct{}) fakelock.Interceptor { return fakelock.Hang },
		"for ever":                  fakelock.Block,
	}, func(t *testing.T, hangs func(<-chan struct{}) fakelock.Interceptor) {
		l := newLock(fakelock.NewStore(), "lease", "a")
		end := make(chan struct{})
		defer close(end)
		l.Intercept(fakelock.Only(fakelock.Create, func(ctx context.Context, op fakelock.Operation, send func() error) error {
			l.Intercept(hangs(end))
			return hangs(end)(ctx, op, send)
		}))
		a := newReplica(t, l, func(o *Options) { o.RequestTimeout = 9 * time.Second }).start()
		requireWithin(t, a.options.ReleaseTimeout, a.end())
	})
}

// The write arrives after the process has ended.
func TestAcquisitionInDoubtDoesNotTakeEffectAfterAStop(t *testing.T) {
	type test struct {
		held *record
		op   fakelock.Operation
	}
	for _, reading := range []bool{false, true} { // the stop comes while it waits to read again, or while it reads
		each(t, map[string]test{
			"missing":  {nil, fakelock.Create},
			"released": {&record{LeaseDurationSeconds: 1}, fakelock.Update},
			"expired":  {&record{HolderIdentity: "gone", LeaseDurationSeconds: 15}, fakelock.Update},
		}, func(t *testing.T, test test) {
			s, arrive := fakelock.NewStore(), make(chan struct{})
			if test.held != nil {
				s.Set("lease", *test.held)
			}
			l := newLock(s, "lease", "a")
			l.Intercept(fakelock.Only(test.op, fakelock.Late(func() { <-arrive })))
			a := newReplica(t, l).start()
			elapse(15*time.Second + 5*time.Second + time.Millisecond) // two time-outs, of which the first has it read again at once
			if tried := l.Requests()[test.op]; tried < 2 {
				t.Fatalf("tried %d times", tried)
			}
			l.Intercept(nil)
			if reading {
				l.Intercept(fakelock.Only(fakelock.Get, fakelock.Once(fakelock.After(a.stop))))
				<-a.result
			} else {
				a.end()
			}
			close(arrive)
			synctest.Wait()
			requireNothingDone(t, s, a)
		})
	}
}

// A rejected acquisition is not in doubt. After other errors, a write at the stop makes it
// fail.
func TestStopAfterARejectedAcquisitionWritesNothing(t *testing.T) {
	type test struct {
		err    error
		writes int
	}
	each(t, map[string]test{
		"bad request":    {apierrors.NewBadRequest("broken"), 0},
		"forbidden":      {apierrors.NewForbidden(leases, "lease", fakelock.ErrBroken), 0},
		"internal error": {fakelock.ErrBroken, 1},
	}, func(t *testing.T, test test) {
		s := fakelock.NewStore()
		s.Set("lease", record{})
		l := newLock(s, "lease", "a")
		l.Intercept(fakelock.Only(fakelock.Update, func(context.Context, fakelock.Operation, func() error) error {
			return test.err
		}))
		a := newReplica(t, l).start()
		elapse(time.Minute)
		before := l.Requests()
		if n := before[fakelock.Update]; n < 25 || n > 32 {
			t.Errorf("tried %d times in a minute", n)
		}
		l.Intercept(nil)
		requireWithin(t, 0, a.end())
		if after := l.Requests(); after[fakelock.Update] != before[fakelock.Update]+test.writes {
			t.Errorf("requests %v, before %v", after, before)
		}
	})
}
