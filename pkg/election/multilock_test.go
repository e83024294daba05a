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

// One rolling update to both Leases, and another one to the new Lease.
func TestElectionMovesFromOneLeaseToAnotherWithOneLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakelock.NewStore()
		running := []*replica{startWith(t, newLock(s, "old", "a1")), startWith(t, newLock(s, "old", "b1"))}
		leaders := 0
		watch := func(d time.Duration) {
			for range d / (100 * time.Millisecond) {
				elapse(100 * time.Millisecond)
				leaders = 0
				for _, r := range running {
					if r.Leading() {
						leaders++
					}
				}
				if leaders > 1 {
					t.Fatalf("%d leaders", leaders)
				}
			}
		}
		watch(5 * time.Second)
		for _, next := range []func() *replica{
			func() *replica { return startBoth(t, s, "a2") },
			func() *replica { return startBoth(t, s, "b2") },
			func() *replica { return startWith(t, newLock(s, "new", "a3")) },
			func() *replica { return startWith(t, newLock(s, "new", "b3")) },
		} {
			running = append(running, next())
			watch(20 * time.Second)
			running[0].end()
			running = running[1:]
			watch(40 * time.Second)
			if leaders != 1 {
				t.Fatalf("%d leaders after a replica was replaced", leaders)
			}
		}
	})
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
			a := startBoth(t, s, "both")
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

func TestAcquisitionThatHalfSucceedsIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakelock.NewStore()
		s.Set("old", record{})
		s.Set("new", record{})
		both, _, after := moving(s, "a")
		after.Intercept(fakelock.Only(fakelock.Update, fakelock.Fail))
		a := startWith(t, both)
		elapse(5 * time.Second)
		requireStandby(t, a)
		requireHolders(t, s, "a", "")
		a.end()
		requireHolders(t, s, "", "")
	})
}

// The former holder has ended, so its Lease expires.
func TestAcquisitionOfBothThatWasGivenUpDoesNotTakeEffectAfterAStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, letGo := fakelock.NewStore(), make(chan struct{})
		gone := record{HolderIdentity: "gone", LeaseDurationSeconds: 15}
		s.Set("old", gone)
		s.Set("new", gone)
		both, before, _ := moving(s, "a")
		before.Intercept(fakelock.Only(fakelock.Update, fakelock.Late(func() { <-letGo })))
		a := startWith(t, both)
		elapse(15*time.Second + 3*time.Second)
		if before.Requests()[fakelock.Update] == 0 {
			t.Fatal("it was not tried")
		}
		before.Intercept(nil)
		a.end()
		close(letGo)
		synctest.Wait()
		requireHolders(t, s, "", "")
	})
}
