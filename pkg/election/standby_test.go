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

func TestFreeLeaseIsAcquiredAtOnce(t *testing.T) {
	for name, record := range map[string]*resourcelock.LeaderElectionRecord{
		"missing":            nil,
		"never held":         {},
		"released":           {LeaseDurationSeconds: 1, RenewTime: metav1.Now(), LeaderTransitions: 4},
		"its own, left over": {HolderIdentity: "a", LeaseDurationSeconds: 15, RenewTime: metav1.Now()},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := fakelock.NewStore()
				if record != nil {
					if _, err := s.Put("lease", fakelock.Object{Record: *record}); err != nil {
						t.Fatal(err)
					}
				}
				a := newReplica(t, newLock(s, "lease", "a")).start()
				synctest.Wait() // no time passes
				requireLeader(t, a)
				if err := a.end(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// The times in the record are from another machine's clock and do not count.
func TestHeldLeaseIsRespectedForItsOwnDurationFromFirstSight(t *testing.T) {
	for name, renewed := range map[string]time.Duration{
		"renewed just now": 0, "renewed an hour ago, by a clock that is late": -time.Hour, "renewed in an hour, by a clock that is early": time.Hour,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := fakelock.NewStore()
				_, err := s.Put("lease", fakelock.Object{Record: resourcelock.LeaderElectionRecord{
					HolderIdentity: "gone", LeaseDurationSeconds: 40, RenewTime: metav1.NewTime(time.Now().Add(renewed)),
				}})
				if err != nil {
					t.Fatal(err)
				}
				a := newReplica(t, newLock(s, "lease", "a")).start()
				elapse(40*time.Second - 1)
				requireStandby(t, a)
				if l := a.Leader(); l.Identity != "gone" {
					t.Errorf("the leader is %+v", l)
				}
				elapse(1)
				requireLeader(t, a)
				a.end()
			})
		})
	}
}

// Every write counts as a renewal, even if the holder's clock stands still.
func TestStandbyGoesByChangesNotByTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakelock.NewStore()
		a := newReplica(t, newLock(s, "lease", "a"))
		written, _ := s.Put("lease", fakelock.Object{Record: resourcelock.LeaderElectionRecord{HolderIdentity: "b", LeaseDurationSeconds: 15}})
		a.start()
		for range 30 {
			elapse(10 * time.Second)
			requireStandby(t, a)
			var err error
			if written, err = s.Put("lease", written); err != nil {
				t.Fatal(err)
			}
		}
		elapse(15*time.Second + 2400*time.Millisecond)
		requireLeader(t, a)
		a.end()
	})
}

func TestReleasedLeaseIsAcquiredAtOnceAfterAHint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakelock.NewStore()
		a := newReplica(t, newLock(s, "lease", "a"), withWatch(s)).start()
		synctest.Wait()
		b := newReplica(t, newLock(s, "lease", "b"), withWatch(s)).start()
		elapse(777 * time.Millisecond)
		requireLeader(t, a)
		released := time.Now()
		if err := a.end(); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		requireLeader(t, b)
		if waited := time.Since(released); waited != 0 {
			t.Errorf("it took %s", waited)
		}
		if o, _ := s.Get("lease"); o.Record.LeaderTransitions != 1 {
			t.Errorf("the new record is %+v", o.Record)
		}
		b.end()
	})
}

func TestReleasedLeaseIsAcquiredWithoutAWatchAtTheNextRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := twoReplicas(t)
		elapse(time.Minute)
		a.end()
		elapse(2400 * time.Millisecond)
		requireLeader(t, b)
		b.end()
	})
}

// With a watch, a standby reads each renewal when it is made.
func TestExpiredLeaseIsAcquiredAtItsExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakelock.NewStore()
		a := newReplica(t, newLock(s, "lease", "a")).start()
		synctest.Wait()
		b := newReplica(t, newLock(s, "lease", "b"), withWatch(s)).start()
		elapse(time.Minute) // renewed just now
		a.lock.Intercept(fakelock.Hang)
		elapse(15*time.Second - 1)
		requireStandby(t, b)
		elapse(1)
		requireLeader(t, b)
		a.end()
		b.end()
	})
}

func TestAcquisitionWhoseAnswerIsLostIsNoticedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakelock.NewStore()
		l := newLock(s, "lease", "a")
		lost := false
		l.Intercept(func(ctx context.Context, op fakelock.Operation, send func() error) error {
			if op == fakelock.Get || lost {
				return send()
			}
			lost = true
			return fakelock.LoseAnswer(ctx, op, send)
		})
		a := newReplica(t, l).start()
		synctest.Wait()
		if !lost {
			t.Fatal("no answer was lost")
		}
		requireLeader(t, a)
		a.end()
	})
}

// A lost race has no influence on the next acquisition.
func TestAcquisitionThatFailsOnceIsTriedAtOnceAlthoughAnotherOneWasLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakelock.NewStore()
		setHolder(t, s, "a")
		l := newLock(s, "lease", "b")
		raced := false
		l.Intercept(fakelock.Only(fakelock.Update, func(_ context.Context, _ fakelock.Operation, send func() error) error {
			if !raced {
				raced = true
				setHolder(t, s, "c")
			}
			return send()
		}))
		b := newReplica(t, l, withWatch(s)).start()
		synctest.Wait()
		setHolder(t, s, "")
		elapse(time.Second)
		requireStandby(t, b)
		if !raced || s.Holder("lease") != "c" {
			t.Fatalf("%q holds the lease, and has raced: %t", s.Holder("lease"), raced)
		}
		failed := false
		l.Intercept(fakelock.Only(fakelock.Update, func(ctx context.Context, op fakelock.Operation, send func() error) error {
			if !failed {
				failed = true
				return fakelock.Fail(ctx, op, send)
			}
			return send()
		}))
		setHolder(t, s, "")
		synctest.Wait()
		if !failed {
			t.Error("nothing has failed")
		}
		requireLeader(t, b)
		b.end()
	})
}

func TestRefusedAcquisitionIsTriedAtTheRetryPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakelock.NewStore()
		l := newLock(s, "lease", "a")
		l.Intercept(fakelock.Only(fakelock.Create, fakelock.Fail))
		a := newReplica(t, l).start()
		elapse(time.Minute)
		if n := l.Requests()[fakelock.Create]; n < 25 || n > 32 {
			t.Errorf("tried %d times in a minute", n)
		}
		a.end()
	})
}

// stopping is a context that has ended while derived contexts have not.
type stopping struct{ context.Context }

func (stopping) Done() <-chan struct{} { return nil }

func (stopping) Err() error { return context.Canceled }

func TestStopDuringAReadOfAFreeLeaseAcquiresNothing(t *testing.T) {
	for _, missing := range []bool{true, false} {
		s := fakelock.NewStore()
		if !missing {
			if _, err := s.Put("lease", fakelock.Object{}); err != nil {
				t.Fatal(err)
			}
		}
		lock := newLock(s, "lease", "a")
		r := newReplica(t, lock)
		if _, ok := r.tryAcquire(stopping{t.Context()}); ok {
			t.Error("acquired")
		}
		if requests := lock.Requests(); requests[fakelock.Get] != 1 || requests[fakelock.Create]+requests[fakelock.Update] != 0 {
			t.Errorf("the Lease is missing %t, requests %v", missing, requests)
		}
		if _, ok := r.tryAcquire(t.Context()); !ok {
			t.Error("the Lease is not free")
		}
	}
}

var leases = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

// After a first failure it is tried again at once, and after any conflict: another was
// faster, which is nothing to log.
func TestWhenAnAcquisitionThatFailedIsTriedAgainAtOnce(t *testing.T) {
	conflict, exists := apierrors.NewConflict(leases, "lease", nil), apierrors.NewAlreadyExists(leases, "lease")
	for name, test := range map[string]struct {
		missed       int // before
		err          error
		over         bool // the context
		again, tells bool
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
			var logged log
			r := newReplica(t, newLock(fakelock.NewStore(), "lease", "a"))
			r.missed = test.missed
			ctx, cancel := context.WithCancel(logged.context(t.Context()))
			defer cancel()
			if test.over {
				cancel()
			}
			r.acquisitionFailed(ctx, test.err)
			if again := len(r.hints) == 1; again != test.again || r.missed != test.missed+1 {
				t.Errorf("at once %t, missed %d times", again, r.missed)
			}
			if test.tells {
				logged.require(t, "Could not acquire the lease", test.err.Error())
			} else {
				logged.require(t)
			}
		})
	}
}
