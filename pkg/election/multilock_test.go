package election

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/eventd/eventd/test/fakelock"
)

// moving returns client-go's MultiLock over an old and a new Lease.
func moving(s *fakelock.Store, identity string) (*resourcelock.MultiLock, fakeLock, fakeLock) {
	before, after := newLock(s, "old", identity), newLock(s, "new", identity)
	return &resourcelock.MultiLock{Primary: before, Secondary: after}, before, after
}

func startWith(t *testing.T, lock resourcelock.Interface) *replica {
	return newReplica(t, newLock(nil, "", "unused"), func(o *Options) { o.Lock = lock }).start()
}

// startBoth starts a replica with both Leases.
func startBoth(t *testing.T, s *fakelock.Store, identity string) *replica {
	both, _, _ := moving(s, identity)
	return startWith(t, both)
}

func requireHolders(t *testing.T, s *fakelock.Store, before, after string) {
	t.Helper()
	if s.Holder("old") != before || s.Holder("new") != after {
		t.Fatalf("the Leases are held by %q and %q, want %q and %q", s.Holder("old"), s.Holder("new"), before, after)
	}
}

// client-go's MultiLock reads its second Lease again just before it writes it.
func TestMultiLockDoesNotOverwriteWhoHasJustAcquiredTheSecondLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, arrive := fakelock.NewStore(), make(chan struct{})
		s.Set("old", record{})
		s.Set("new", record{})
		both, before, _ := moving(s, "both")
		before.Intercept(fakelock.Only(fakelock.Update, fakelock.Once(fakelock.After(func() { <-arrive }))))
		a := startWith(t, both)
		requireHolders(t, s, "both", "")
		b := startWith(t, newLock(s, "new", "b"))
		requireLeader(t, b)
		close(arrive)
		requireSteady(t, time.Minute, b, a)
	})
}

// After its release the first record is valid for a second only.
func TestMultiLockRespectsTheHolderOfOneLeaseForItsOwnDuration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakelock.NewStore()
		s.Set("old", record{LeaseDurationSeconds: 1})
		b := startWith(t, newLock(s, "new", "b"))
		requireLeader(t, b)
		a := startBoth(t, s, "both")
		requireSteady(t, time.Minute, b, a)
		b.end()
		elapse(20 * time.Second)
		requireLeader(t, a)
	})
}

func TestMultiLockPutsBackTheLeaseThatIsMissing(t *testing.T) {
	for _, missing := range []string{"old", "new"} {
		synctest.Test(t, func(t *testing.T) {
			s := fakelock.NewStore()
			both, before, after := moving(s, "both")
			map[string]fakeLock{"old": before, "new": after}[missing].Announce(announcementOf("both"))
			a := startWith(t, both)
			if l := a.Leader(); l.Announcement != announcementOf("both") {
				t.Errorf("announced %+v in the %s Lease", l, missing)
			}
			elapse(3 * time.Second)
			s.Delete(missing)
			elapse(10 * time.Second)
			requireLeader(t, a)
			requireHolders(t, s, "both", "both")
			a.end()
			requireHolders(t, s, "", "")
		})
	}
}

// movingBoth starts a, which leads, and b, a standby, both with a MultiLock. Updates of
// the second Lease by a fail.
func movingBoth(t *testing.T) (s *fakelock.Store, a, b *replica, after fakeLock) {
	s = fakelock.NewStore()
	both, _, after := moving(s, "a")
	a = newReplica(t, newLock(nil, "", "unused"), func(o *Options) {
		o.Lock = both
		o.ReleaseTimeout = 5*time.Second - releaseRetry/2 // ends between two attempts
	}).start()
	elapse(3 * time.Second)
	requireLeader(t, a)
	b = startBoth(t, s, "b")
	elapse(time.Second)
	requireStandby(t, b)
	after.Intercept(fakelock.Only(fakelock.Update, fakelock.Fail))
	return s, a, b, after
}

// While only one of the two Leases is released, other MultiLocks read an unknown holder
// and acquire neither. An elector with one Lease alone acquires that Lease when it is
// free.
func TestReleaseThatHalfSucceedsIsRetriedUntilBothLeasesAreFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, a, b, after := movingBoth(t)
		c := startWith(t, newLock(s, "new", "c"))
		a.stop()
		for range 30 {
			elapse(100 * time.Millisecond)
			requireStandby(t, a, b, c)
			requireHolders(t, s, "", "a")
		}
		c.end()
		after.Intercept(nil)
		a.end()
		if s.Holder("old") == "a" || s.Holder("new") == "a" {
			t.Errorf("after the release held by %q and %q", s.Holder("old"), s.Holder("new"))
		}
		elapse(2400 * time.Millisecond)
		requireLeader(t, b)
	})
}

func TestReleaseLeavesAloneWhoHasTakenTheOtherLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, a, b, after := movingBoth(t)
		c := startWith(t, newLock(s, "old", "c"))
		requireStandby(t, c)
		a.stop()
		elapse(3 * time.Second)
		requireLeader(t, c)
		after.Intercept(nil)
		a.end()
		requireHolders(t, s, "c", "")
		requireSteady(t, time.Minute, c, b)
	})
}

func TestReleaseThatOnlyHalfSucceedsIsBoundedInTimeAndLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, a, b, _ := movingBoth(t)
		requireWithin(t, a.options.ReleaseTimeout, a.end())
		a.logged.require(t, "The lease is not released", "broken")
		requireHolders(t, s, "", "a")
		elapse(15*time.Second - time.Millisecond)
		requireStandby(t, b)
		elapse(2400*time.Millisecond + time.Millisecond)
		requireLeader(t, b)
	})
}

// The second write fails, or the first one arrives after the process has ended.
func TestAcquisitionOfBothThatDoesNotSucceedLeavesNothingAfterAStop(t *testing.T) {
	each(t, map[string]bool{"half succeeds": false, "is in doubt": true}, func(t *testing.T, late bool) {
		s, arrive := fakelock.NewStore(), make(chan struct{})
		gone := record{HolderIdentity: "gone", LeaseDurationSeconds: 15}
		s.Set("old", gone)
		s.Set("new", gone)
		both, before, after := moving(s, "a")
		if late {
			before.Intercept(fakelock.Only(fakelock.Update, fakelock.Late(func() { <-arrive })))
		} else {
			after.Intercept(fakelock.Only(fakelock.Update, fakelock.Fail))
		}
		a := startWith(t, both)
		elapse(15*time.Second + 3*time.Second)
		requireStandby(t, a)
		if before.Requests()[fakelock.Update] == 0 || !late && s.Holder("old") != "a" {
			t.Fatalf("it was not tried: held by %q", s.Holder("old"))
		}
		before.Intercept(nil)
		a.end()
		close(arrive)
		synctest.Wait()
		if now := s.Holder("new"); s.Holder("old") != "" || now == "a" {
			t.Errorf("held by %q and %q after the stop", s.Holder("old"), now)
		}
	})
}
