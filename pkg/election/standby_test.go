package election

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/eventd/eventd/test/fakelock"
)

// record is what a lock stores.
type record = resourcelock.LeaderElectionRecord

func TestFreeLeaseIsAcquiredAtOnce(t *testing.T) {
	each(t, map[string]*record{
		"missing":            nil,
		"never held":         {},
		"released":           {LeaseDurationSeconds: 1, RenewTime: metav1.Now(), LeaderTransitions: 4},
		"its own, left over": {HolderIdentity: "a", LeaseDurationSeconds: 15, RenewTime: metav1.Now()},
		"of one that ended":  {HolderIdentity: "ended", LeaseDurationSeconds: 15, RenewTime: metav1.Now()},
	}, func(t *testing.T, stored *record) {
		s := fakelock.NewStore()
		if stored != nil {
			s.Set("lease", *stored)
		}
		requireLeader(t, newReplica(t, newLock(s, "lease", "a"), func(o *Options) { o.Ended = "ended" }).start()) // no time passes
	})
}

// One that was created or applied without a holder has had no other: its first one is no transition.
func TestTransitionsAreChangesOfTheHolder(t *testing.T) {
	type test struct {
		stored *record
		want   int
	}
	each(t, map[string]test{
		"missing":            {nil, 0},
		"never held":         {&record{}, 0},
		"released":           {&record{LeaseDurationSeconds: 1, RenewTime: metav1.Now(), LeaderTransitions: 4}, 5},
		"expired":            {&record{HolderIdentity: "gone", LeaseDurationSeconds: 1, RenewTime: metav1.Now(), LeaderTransitions: 4}, 5},
		"its own, left over": {&record{HolderIdentity: "a", LeaseDurationSeconds: 15, RenewTime: metav1.Now(), LeaderTransitions: 4}, 4},
	}, func(t *testing.T, test test) {
		s := fakelock.NewStore()
		if test.stored != nil {
			s.Set("lease", *test.stored)
		}
		a := newReplica(t, newLock(s, "lease", "a")).start()
		elapse(2 * time.Second)
		requireLeader(t, a)
		if o, _ := s.Get("lease"); o.Record.LeaderTransitions != test.want || a.Tenure().Transitions != test.want {
			t.Errorf("the record is %+v, and the tenure %+v, not with %d transitions", o.Record, a.Tenure(), test.want)
		}
	})
}

// The times in the record are from another machine's clock and do not count.
func TestHeldLeaseIsRespectedForItsOwnDurationFromFirstSight(t *testing.T) {
	each(t, map[string]time.Duration{
		"renewed just now": 0, "renewed an hour ago, by a clock that is late": -time.Hour, "renewed in an hour, by a clock that is early": time.Hour,
	}, func(t *testing.T, renewed time.Duration) {
		s := fakelock.NewStore()
		s.Set("lease", record{HolderIdentity: "gone", LeaseDurationSeconds: 40, RenewTime: metav1.NewTime(time.Now().Add(renewed))})
		a := newReplica(t, newLock(s, "lease", "a"), func(o *Options) { o.Ended = "ended" }).start()
		elapse(40*time.Second - 1)
		requireStandby(t, a)
		if l := a.Leader(); l.Identity != "gone" {
			t.Errorf("the leader is %+v", l)
		}
		elapse(1)
		requireLeader(t, a)
	})
}

// Every write counts as a renewal, even if the holder's clock stands still.
func TestStandbyGoesByChangesNotByTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakelock.NewStore()
		forceHolder(s, "b")
		a := newReplica(t, newLock(s, "lease", "a")).start()
		for range 30 {
			elapse(10 * time.Second)
			requireStandby(t, a)
			touch(s)
		}
		s.Set("lease", record{HolderIdentity: "b"}) // without a duration: that of the standby
		elapse(15*time.Second - 1)
		requireStandby(t, a)
		elapse(2400*time.Millisecond + 1)
		requireLeader(t, a)
	})
}

func TestReleasedLeaseIsAcquiredAtOnceAfterAHint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, a, b := twoReplicas(t, watching)
		elapse(777 * time.Millisecond)
		requireLeader(t, a)
		b.lock.Intercept(fakelock.Only(fakelock.Get, fakelock.Once(fakelock.Fail)))
		touch(s)
		synctest.Wait()
		b.logged.require(t, "Could not read the lease", "broken")
		requireWithin(t, 0, a.end())
		synctest.Wait() // no time passes
		requireLeader(t, b)
		if o, _ := s.Get("lease"); o.Record.LeaderTransitions != 1 {
			t.Errorf("the new record is %+v", o.Record)
		}
	})
}

// A lost race has no influence on the next acquisition.
func TestAcquisitionThatFailsOnceIsTriedAtOnceAlthoughAnotherOneWasLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakelock.NewStore()
		forceHolder(s, "a")
		l := newLock(s, "lease", "b")
		l.Intercept(fakelock.Only(fakelock.Update, fakelock.Once(fakelock.Before(func() { forceHolder(s, "c") }))))
		b := newReplica(t, l, watching).start()
		forceHolder(s, "")
		elapse(time.Second)
		requireStandby(t, b)
		requireHolder(t, s, "c")
		l.Intercept(fakelock.Only(fakelock.Update, fakelock.Once(fakelock.Fail)))
		before := l.Requests()
		forceHolder(s, "")
		synctest.Wait()
		requireLeader(t, b)
		if tried := l.Requests()[fakelock.Update] - before[fakelock.Update]; tried != 2 || b.missed != 0 {
			t.Errorf("tried %d times, %d failures are left", tried, b.missed)
		}
	})
}

var leases = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

// After a first failure it is tried again at once, and after any conflict: another was
// faster, which is nothing to log.
func TestWhenAnAcquisitionThatFailedIsTriedAgainAtOnce(t *testing.T) {
	conflict, exists := apierrors.NewConflict(leases, "lease", nil), apierrors.NewAlreadyExists(leases, "lease")
	for name, test := range map[string]struct {
		missed        int // before
		err           error
		stopped       bool
		again, logged bool
	}{
		"first":                      {0, fakelock.ErrBroken, false, true, true},
		"second":                     {1, fakelock.ErrBroken, false, false, true},
		"first, at a stop":           {0, fakelock.ErrBroken, true, true, false},
		"first, a conflict":          {0, conflict, false, true, false},
		"second, a conflict":         {1, conflict, false, true, false},
		"tenth, was there before":    {9, exists, false, true, false},
		"second, a conflict, a stop": {1, conflict, true, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReplica(t, newLock(fakelock.NewStore(), "lease", "a"))
			r.missed = test.missed
			ctx, cancel := context.WithCancel(r.logged.context(t.Context()))
			defer cancel()
			if test.stopped {
				cancel()
			}
			r.acquisitionFailed(ctx, test.err)
			if again := len(r.hints) == 1; again != test.again || r.missed != test.missed+1 {
				t.Errorf("at once %t, missed %d times", again, r.missed)
			}
			if test.logged {
				r.logged.require(t, "Could not acquire the lease", test.err.Error())
			} else {
				r.logged.require(t)
			}
		})
	}
}
