package election

import (
	"context"
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
	r := newReplica(t, newLock(nil, "", "unused"), func(o *Options) { o.Lock = lock })
	return r.start()
}

func requireOneLeader(t *testing.T, replicas ...*replica) {
	t.Helper()
	var leaders []string
	for _, r := range replicas {
		if r.Leading() {
			leaders = append(leaders, r.Identity())
		}
	}
	if len(leaders) > 1 {
		t.Fatalf("leaders: %v", leaders)
	}
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
		var running []*replica
		watch := func(d time.Duration) {
			for range d / (100 * time.Millisecond) {
				elapse(100 * time.Millisecond)
				requireOneLeader(t, running...)
			}
		}
		for _, identity := range []string{"a1", "b1"} {
			running = append(running, startWith(t, newLock(s, "old", identity)))
		}
		watch(5 * time.Second)
		for phase, lockOf := range []func(string) resourcelock.Interface{
			func(identity string) resourcelock.Interface { l, _, _ := moving(s, identity); return l },
			func(identity string) resourcelock.Interface { return newLock(s, "new", identity) },
		} {
			for _, name := range []string{"a", "b"} {
				running = append(running, startWith(t, lockOf(name+string(rune('2'+phase)))))
				watch(20 * time.Second)
				running[0].end()
				running = running[1:]
				watch(40 * time.Second)
				leaders := 0
				for _, r := range running {
					if r.Leading() {
						leaders++
					}
				}
				if leaders != 1 {
					t.Fatalf("%d leaders after a replica was replaced", leaders)
				}
			}
		}
		for _, r := range running {
			r.end()
		}
	})
}

// client-go's MultiLock reads its second Lease again just before it writes it.
func TestMultiLockDoesNotOverwriteWhoHasJustAcquiredTheSecondLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakelock.NewStore()
		both, before, _ := moving(s, "both")
		for _, name := range []string{"old", "new"} {
			if _, err := s.Put(name, fakelock.Object{}); err != nil {
				t.Fatal(err)
			}
		}
		acquiring, arrive := make(chan struct{}), make(chan struct{})
		before.Intercept(fakelock.Only(fakelock.Update, func(_ context.Context, _ fakelock.Operation, send func() error) error {
			err := send()
			close(acquiring)
			<-arrive
			return err
		}))
		a := startWith(t, both)
		<-acquiring
		before.Intercept(nil)
		b := startWith(t, newLock(s, "new", "b"))
		synctest.Wait()
		requireLeader(t, b)
		close(arrive)
		for range 600 {
			elapse(100 * time.Millisecond)
			requireLeader(t, b)
			requireStandby(t, a)
		}
		b.end()
		a.end()
	})
}

// After its release the first record is valid for a second only.
func TestMultiLockRespectsTheHolderOfOneLeaseForItsOwnDuration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakelock.NewStore()
		_, err := s.Put("old", fakelock.Object{Record: resourcelock.LeaderElectionRecord{LeaseDurationSeconds: 1}})
		if err != nil {
			t.Fatal(err)
		}
		b := startWith(t, newLock(s, "new", "b"))
		synctest.Wait()
		both, _, _ := moving(s, "both")
		a := startWith(t, both)
		for range 600 {
			elapse(100 * time.Millisecond)
			requireLeader(t, b)
			requireStandby(t, a)
		}
		b.end()
		elapse(20 * time.Second)
		requireLeader(t, a)
		a.end()
	})
}

func TestMultiLockPutsBackTheLeaseThatIsMissing(t *testing.T) {
	for _, missing := range []string{"old", "new"} {
		synctest.Test(t, func(t *testing.T) {
			s := fakelock.NewStore()
			both, _, _ := moving(s, "both")
			a := startWith(t, both)
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
func movingBoth(t *testing.T, logged *log) (s *fakelock.Store, a, b *replica, after fakeLock) {
	s = fakelock.NewStore()
	both, _, after := moving(s, "a")
	a = newReplica(t, newLock(nil, "", "unused"), func(o *Options) {
		o.Lock = both
		o.ReleaseTimeout = 5*time.Second - releaseRetry/2 // ends between two attempts
	}).startIn(logged.context(t.Context()))
	elapse(3 * time.Second)
	requireLeader(t, a)
	both, _, _ = moving(s, "b")
	b = startWith(t, both)
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
		s, a, b, after := movingBoth(t, &log{})
		c := startWith(t, newLock(s, "new", "c"))
		a.stop()
		for range 30 {
			elapse(100 * time.Millisecond)
			requireStandby(t, a)
			requireStandby(t, b)
			requireStandby(t, c)
			requireHolders(t, s, "", "a")
		}
		c.end()
		after.Intercept(nil)
		if err := <-a.result; err != nil {
			t.Error(err)
		}
		if s.Holder("old") == "a" || s.Holder("new") == "a" {
			t.Errorf("after the release held by %q and %q", s.Holder("old"), s.Holder("new"))
		}
		elapse(2400 * time.Millisecond)
		requireLeader(t, b)
		b.end()
	})
}

func TestReleaseLeavesAloneWhoHasTakenTheOtherLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, a, b, after := movingBoth(t, &log{})
		c := startWith(t, newLock(s, "old", "c"))
		synctest.Wait()
		requireStandby(t, c)
		a.stop()
		elapse(3 * time.Second)
		requireLeader(t, c)
		after.Intercept(nil)
		<-a.result
		requireHolders(t, s, "c", "")
		for range 600 {
			elapse(100 * time.Millisecond)
			requireLeader(t, c)
			requireStandby(t, b)
		}
		b.end()
		c.end()
	})
}

func TestReleaseThatOnlyHalfSucceedsIsBoundedInTimeAndLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logged := &log{}
		s, a, b, _ := movingBoth(t, logged)
		began := time.Now()
		a.end()
		if took := time.Since(began); took > a.options.ReleaseTimeout {
			t.Errorf("it took %s", took)
		}
		logged.require(t, "The lease is not released", "broken")
		if s.Holder("new") != "a" {
			t.Fatal("released")
		}
		elapse(15*time.Second - time.Millisecond)
		requireStandby(t, b)
		elapse(2400*time.Millisecond + time.Millisecond)
		requireLeader(t, b)
		b.end()
	})
}

func TestAcquisitionThatHalfSucceedsIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakelock.NewStore()
		for _, name := range []string{"old", "new"} {
			if _, err := s.Put(name, fakelock.Object{}); err != nil {
				t.Fatal(err)
			}
		}
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
		s := fakelock.NewStore()
		for _, name := range []string{"old", "new"} {
			if _, err := s.Put(name, fakelock.Object{Record: resourcelock.LeaderElectionRecord{HolderIdentity: "gone", LeaseDurationSeconds: 15}}); err != nil {
				t.Fatal(err)
			}
		}
		both, before, _ := moving(s, "a")
		letGo := make(chan struct{})
		before.Intercept(fakelock.Only(fakelock.Update, func(ctx context.Context, _ fakelock.Operation, send func() error) error {
			return fakelock.Detach(ctx, func() error {
				<-letGo
				return send()
			})
		}))
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
