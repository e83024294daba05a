package election

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// a and b are two replicas, of which a leads.
func twoReplicas(t *testing.T, change ...func(*Options)) (s *store, a, b *replica) {
	s = newStore()
	a = newReplica(t, newLock(s, "lease", "a"), change...).start()
	synctest.Wait()
	requireLeader(t, a)
	b = newReplica(t, newLock(s, "lease", "b"), change...).start()
	synctest.Wait()
	requireStandby(t, b)
	return s, a, b
}

func requireLeader(t *testing.T, r *replica) {
	t.Helper()
	if !r.Leading() {
		t.Fatalf("%s does not lead", r.Identity())
	}
	if l := r.Leader(); l.Identity != r.Identity() {
		t.Fatalf("%s leads, and says that %q does", r.Identity(), l.Identity)
	}
}

func requireStandby(t *testing.T, r *replica) {
	t.Helper()
	if r.Leading() {
		t.Fatalf("%s leads", r.Identity())
	}
}

// elapse lets time pass, and everything that happens in it.
func elapse(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func withWatch(s *store) func(*Options) {
	return func(o *Options) { o.Watch = s.watcher }
}

func TestFreeLeaseIsTakenAtOnce(t *testing.T) {
	for name, record := range map[string]*resourcelock.LeaderElectionRecord{
		"missing":            nil,
		"never held":         {},
		"released":           {LeaseDurationSeconds: 1, RenewTime: metav1.Now(), LeaderTransitions: 4},
		"its own, left over": {HolderIdentity: "a", LeaseDurationSeconds: 15, RenewTime: metav1.Now()},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStore()
				if record != nil {
					if _, err := s.put("lease", object{record: *record}); err != nil {
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

// A standby knows only since when it has seen a record unchanged. What the
// record says about times is from another machine's clock.
func TestHeldLeaseIsRespectedForItsOwnDurationFromFirstSight(t *testing.T) {
	for name, renewed := range map[string]time.Duration{
		"renewed just now": 0, "renewed an hour ago, by a clock that is late": -time.Hour, "renewed in an hour, by a clock that is early": time.Hour,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStore()
				_, err := s.put("lease", object{record: resourcelock.LeaderElectionRecord{
					HolderIdentity: "gone", LeaseDurationSeconds: 40, RenewTime: metav1.NewTime(time.Now().Add(renewed)),
				}})
				if err != nil {
					t.Fatal(err)
				}
				a := newReplica(t, newLock(s, "lease", "a")).start()
				elapse(40*time.Second - 1)
				requireStandby(t, a)
				if l := a.Leader(); l.Identity != "gone" {
					t.Errorf("the leader is said to be %+v", l)
				}
				elapse(1)
				requireLeader(t, a)
				a.end()
			})
		})
	}
}

// The lock's raw record says that it was renewed, even if the holder's clock
// says the same time again and again, or runs backwards.
func TestStandbyGoesByChangesNotByTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		a := newReplica(t, newLock(s, "lease", "a"))
		written, _ := s.put("lease", object{record: resourcelock.LeaderElectionRecord{HolderIdentity: "b", LeaseDurationSeconds: 15}})
		a.start()
		for range 30 {
			elapse(10 * time.Second)
			requireStandby(t, a)
			var err error
			if written, err = s.put("lease", written); err != nil {
				t.Fatal(err)
			}
		}
		elapse(15*time.Second + 2400*time.Millisecond)
		requireLeader(t, a)
		a.end()
	})
}

func TestLeaderRenewsForAsLongAsItLives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, a, b := twoReplicas(t)
		for range 600 {
			elapse(time.Second)
			requireLeader(t, a)
			requireStandby(t, b)
		}
		if n := a.lock.requests(); n[opUpdate] < 299 || n[opUpdate] > 301 || n[opGet] != 1 {
			t.Errorf("in 10 minutes the leader asked %v", n)
		}
		if n := b.lock.requests(); n[opGet] < 250 || n[opGet] > 301 || n[opUpdate] != 0 {
			t.Errorf("in 10 minutes the standby asked %v", n)
		}
		o, _ := s.get("lease")
		if o.record.LeaderTransitions != 0 || time.Since(o.record.AcquireTime.Time) < 10*time.Minute {
			t.Errorf("renewals changed the record to %+v", o.record)
		}
		b.end()
		a.end()
	})
}

func TestReleasedLeaseIsTakenAtOnceWhenTheWatchSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
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
		if o, _ := s.get("lease"); o.record.LeaderTransitions != 1 {
			t.Errorf("the new record is %+v", o.record)
		}
		b.end()
	})
}

func TestReleasedLeaseIsTakenWithoutAWatchAtTheNextRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := twoReplicas(t)
		elapse(time.Minute)
		a.end()
		elapse(2400 * time.Millisecond)
		requireLeader(t, b)
		b.end()
	})
}

func TestWatchThatSaysNothingOrEndsOrLiesChangesNothing(t *testing.T) {
	for name, watch := range map[string]func(context.Context, func()) error{
		"silent":       func(ctx context.Context, _ func()) error { <-ctx.Done(); return ctx.Err() },
		"ends at once": func(context.Context, func()) error { return errBroken },
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
				a.lock.obstruct(refused)
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

func TestWatchThatEndsIsBegunAnewWithGrowingWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var begun []time.Time
		s := newStore()
		a := newReplica(t, newLock(s, "lease", "a"), func(o *Options) {
			o.Watch = func(context.Context, func()) error {
				begun = append(begun, time.Now())
				return errBroken
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

// What a Role without the right to watch costs would not be noticed otherwise.
func TestWatchThatDoesNotWorkIsLoggedOnceForEachReasonUntilOneWorks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logged := &log{}
		type watch = func(ctx context.Context, changed func()) error
		var now atomic.Value // the watch as it is from now on
		a := newReplica(t, newLock(newStore(), "lease", "a"), func(o *Options) {
			o.Watch = func(ctx context.Context, changed func()) error { return now.Load().(watch)(ctx, changed) }
		})
		failing := func(err error) watch {
			return func(context.Context, func()) error { return err }
		}
		forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "leases"}, "lease", errors.New("no right to watch"))
		now.Store(failing(forbidden))
		a.startIn(logged.context(t.Context()))
		elapse(time.Minute)
		logged.require(t, "cannot be watched", "no right to watch", "by reading only")
		elapse(10 * time.Minute)
		logged.require(t)

		now.Store(failing(errBroken))
		elapse(time.Minute)
		logged.require(t, "cannot be watched", "broken")
		now.Store(failing(nil))
		elapse(time.Minute)
		logged.require(t, "cannot be watched", "without a word")
		now.Store(func(ctx context.Context, _ func()) error { <-ctx.Done(); return ctx.Err() })
		elapse(time.Minute)
		logged.require(t, "cannot be watched", "nothing was heard")

		now.Store(func(_ context.Context, changed func()) error { // works, for a moment
			changed()
			return errBroken
		})
		elapse(time.Minute)
		logged.require(t)
		now.Store(failing(errBroken))
		elapse(time.Minute)
		logged.require(t, "cannot be watched", "broken")
		a.end()
	})
}

func TestSilentWatchIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var begun atomic.Int32
		s := newStore()
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

func TestPlannedStopFinishesTheWorkThenReleasesThenReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, a, b := twoReplicas(t)
		a.finish = 30 * time.Second // twice the lease: it has to be renewed meanwhile
		told := time.Now()
		a.stop()
		for time.Since(told) < a.finish-time.Second {
			elapse(time.Second)
			if s.holder("lease") != "a" || !a.Leading() {
				t.Fatalf("the lease is released %s before the work has returned", a.finish-time.Since(told))
			}
			requireStandby(t, b)
			if err := a.lastTerm().Err(); err == nil {
				t.Fatal("the work was not told to stop")
			}
		}
		if err := <-a.result; err != nil {
			t.Error(err)
		}
		if took := time.Since(told); took != a.finish {
			t.Errorf("the stop took %s", took)
		}
		if holder := s.holder("lease"); holder != "" {
			t.Errorf("when Run has returned, the lease is held by %q", holder)
		}
		requireStandby(t, a)
		b.end()
	})
}

// The Lease must not be free for an instant in which the former leader still
// says that it leads.
func TestNobodyLeadsWhenTheReleaseIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		a := newReplica(t, newLock(s, "lease", "a")).start()
		synctest.Wait()
		asked := 0
		a.lock.obstruct(func(_ context.Context, _ operation, ask func() error) error {
			asked++
			if a.Leading() || a.lastTerm().Err() == nil {
				t.Error("leads while it releases")
			}
			return ask()
		})
		a.end()
		if asked != 2 || s.holder("lease") != "" {
			t.Errorf("released with %d requests, held by %q", asked, s.holder("lease"))
		}
	})
}

func TestReleaseThatFailsIsBoundedInTime(t *testing.T) {
	for name, w := range map[string]way{"refused": refused, "hanging": hanging, "update hangs": only(opUpdate, hanging)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, a, b := twoReplicas(t)
				a.lock.obstruct(w)
				began := time.Now()
				if err := a.end(); err != nil {
					t.Error(err)
				}
				if took := time.Since(began); took > a.options.ReleaseTimeout {
					t.Errorf("it took %s", took)
				}
				if s.holder("lease") != "a" {
					t.Fatal("released")
				}
				elapse(a.options.LeaseDuration + 2*time.Second)
				requireLeader(t, b)
				b.end()
			})
		})
	}
}

func TestRunReturnsAlthoughTheLockNeverDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		letGo := make(chan struct{})
		_, a, b := twoReplicas(t)
		a.lock.obstruct(stuck(letGo))
		elapse(10 * time.Second)
		requireStandby(t, a)
		began := time.Now()
		a.end()
		if took := time.Since(began); took > a.options.ReleaseTimeout+eventTimeout {
			t.Errorf("it took %s", took)
		}
		elapse(8 * time.Second)
		requireLeader(t, b)
		close(letGo)
		elapse(time.Second)
		requireLeader(t, b)
		b.end()
	})
}

func TestReleaseGoesOnAfterAConflictAndALostAnswer(t *testing.T) {
	for name, w := range map[string]way{"a conflict": nil, "a lost answer": answerLost} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStore()
				a := newReplica(t, newLock(s, "lease", "a")).start()
				synctest.Wait()
				disturbed := false
				a.lock.obstruct(only(opUpdate, func(ctx context.Context, op operation, ask func() error) error {
					if disturbed {
						return ask()
					}
					disturbed = true
					if w != nil {
						return w(ctx, op, ask)
					}
					o, _ := s.get("lease")
					if _, err := s.put("lease", o); err != nil { // somebody labels it, say
						t.Error(err)
					}
					return ask()
				}))
				a.end()
				if holder := s.holder("lease"); holder != "" {
					t.Errorf("held by %q", holder)
				}
			})
		})
	}
}

func TestReleaseThatIsAlwaysInConflictIsNotTriedWithoutAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		a := newReplica(t, newLock(s, "lease", "a")).start()
		synctest.Wait()
		tried := 0
		a.lock.obstruct(only(opUpdate, func(_ context.Context, _ operation, ask func() error) error {
			if tried++; tried > 1000 {
				return ask()
			}
			return apierrors.NewConflict(schema.GroupResource{Resource: "leases"}, "lease", errBroken)
		}))
		a.end()
		synctest.Wait() // for the last call: the time may be over while it is on its way
		if limit := int(a.options.ReleaseTimeout/releaseRetry) + 2; tried > limit {
			t.Errorf("tried %d times, and %d are enough", tried, limit)
		}
	})
}

func TestStandbyThatStopsAsksForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := twoReplicas(t)
		before := b.lock.requests()
		b.end()
		if after := b.lock.requests(); after[opGet] != before[opGet] || after[opUpdate] != 0 {
			t.Errorf("asked %v, before %v", after, before)
		}
		a.end()
	})
}

// The deadline counts from the beginning of a renewal: the others may count
// from any time after.
func TestLeaderThatCannotRenewStepsDownAtItsDeadline(t *testing.T) {
	for name, w := range map[string]way{"refused": refused, "hanging": hanging} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, a, b := twoReplicas(t)
				elapse(2*time.Second + 500*time.Millisecond) // renewed half a second ago
				a.lock.obstruct(w)
				elapse(9500*time.Millisecond - 1)
				requireLeader(t, a)
				working := a.lastTerm()
				if working.Err() != nil {
					t.Fatal("the work is told to stop before the deadline")
				}
				elapse(1)
				requireStandby(t, a)
				if cause := context.Cause(working); !errors.Is(cause, ErrLeaseLost) {
					t.Errorf("the cause is %v", cause)
				}
				elapse(5*time.Second - 1)
				requireStandby(t, b)
				elapse(2400*time.Millisecond + 1) // b reads as often
				requireLeader(t, b)
				a.stop()
				<-a.result
				requireLeader(t, b)
				b.end()
			})
		})
	}
}

// A standby whose watch works sees renewals when they are made.
func TestExpiredLeaseIsTakenAtItsExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		a := newReplica(t, newLock(s, "lease", "a")).start()
		synctest.Wait()
		b := newReplica(t, newLock(s, "lease", "b"), withWatch(s)).start()
		elapse(time.Minute) // renewed just now
		a.lock.obstruct(hanging)
		elapse(15*time.Second - 1)
		requireStandby(t, b)
		elapse(1)
		requireLeader(t, b)
		a.end()
		b.end()
	})
}

func TestRenewalThatIsAnsweredLateCountsFromItsBeginning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := twoReplicas(t)
		a.lock.obstruct(slow(time.Second)) // begins at 2 s, is answered at 4 s
		elapse(3 * time.Second)
		a.lock.obstruct(refused)
		elapse(9*time.Second - 1)
		requireLeader(t, a)
		elapse(1)
		requireStandby(t, a)
		b.end()
		a.end()
	})
}

func TestHungConnectionCostsOneRequestNotTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := twoReplicas(t)
		a.lock.obstruct(hanging)
		elapse(7 * time.Second)
		a.lock.obstruct(nil)
		for range 60 {
			elapse(time.Second)
			requireLeader(t, a)
		}
		if a.led() != 1 {
			t.Errorf("led %d times", a.led())
		}
		b.end()
		a.end()
	})
}

// Each attempt is made sooner, and takes less long, the nearer the deadline.
func TestLeaderKeepsTheLeaseIfTheApiserverIsBackWithinTheRenewDeadline(t *testing.T) {
	for name, w := range map[string]way{"refused": refused, "hanging": hanging} {
		for back := 2 * time.Second; back <= 9600*time.Millisecond; back += 200 * time.Millisecond {
			t.Run(name+" until "+back.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					_, a, b := twoReplicas(t)
					a.lock.obstruct(w)
					elapse(back)
					a.lock.obstruct(nil)
					for range 60 {
						elapse(time.Second)
						requireLeader(t, a)
					}
					if a.led() != 1 {
						t.Errorf("led %d times", a.led())
					}
					b.end()
					a.end()
				})
			})
		}
	}
}

func TestRenewalsThatFailAreNotTriedWithoutAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := twoReplicas(t)
		a.lock.obstruct(refused)
		elapse(10*time.Second - 1)
		requireLeader(t, a)
		if n := testutil.ToFloat64(a.metrics.failures); n < 10 || n > 20 {
			t.Errorf("tried %v times until the deadline", n)
		}
		b.end()
		a.stop()
		<-a.result
	})
}

func TestConflictWithSomebodyElsesChangeCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, a, b := twoReplicas(t)
		for range 20 {
			o, _ := s.get("lease")
			if _, err := s.put("lease", o); err != nil {
				t.Fatal(err)
			}
			elapse(2 * time.Second)
			requireLeader(t, a)
		}
		if failed := testutil.ToFloat64(a.metrics.failures); failed != 0 || a.led() != 1 {
			t.Errorf("%v renewals failed, led %d times", failed, a.led())
		}
		b.end()
		a.end()
	})
}

func TestLeaderWhoseAnswersAreLostReadsWhetherItIsStillTheHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := twoReplicas(t)
		every := 0
		a.lock.obstruct(only(opUpdate, func(ctx context.Context, op operation, ask func() error) error {
			if every++; every%2 == 1 {
				return answerLost(ctx, op, ask)
			}
			return ask()
		}))
		for range 60 {
			elapse(time.Second)
			requireLeader(t, a)
		}
		if a.led() != 1 {
			t.Errorf("led %d times", a.led())
		}
		b.end()
		a.end()
	})
}

func TestAcquisitionWhoseAnswerIsLostIsNoticedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		l := newLock(s, "lease", "a")
		lost := false
		l.obstruct(func(ctx context.Context, op operation, ask func() error) error {
			if op == opGet || lost {
				return ask()
			}
			lost = true
			return answerLost(ctx, op, ask)
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

// Whom an earlier race was lost to is of no interest at the next one.
func TestAcquisitionThatFailsOnceIsTriedAtOnceAlthoughAnotherOneWasLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		name := func(holder string) {
			o, _ := s.get("lease")
			o.record.HolderIdentity, o.record.LeaseDurationSeconds = holder, 15
			if _, err := s.put("lease", o); err != nil {
				t.Error(err)
			}
		}
		name("a")
		l := newLock(s, "lease", "b")
		raced := false
		l.obstruct(only(opUpdate, func(_ context.Context, _ operation, ask func() error) error {
			if !raced {
				raced = true
				name("c")
			}
			return ask()
		}))
		b := newReplica(t, l, withWatch(s)).start()
		synctest.Wait()
		name("")
		elapse(time.Second)
		requireStandby(t, b)
		if !raced || s.holder("lease") != "c" {
			t.Fatalf("%q holds the lease, and has raced: %t", s.holder("lease"), raced)
		}
		failed := false
		l.obstruct(only(opUpdate, func(ctx context.Context, op operation, ask func() error) error {
			if !failed {
				failed = true
				return refused(ctx, op, ask)
			}
			return ask()
		}))
		name("")
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
		s := newStore()
		l := newLock(s, "lease", "a")
		l.obstruct(only(opCreate, refused))
		a := newReplica(t, l).start()
		elapse(time.Minute)
		if n := l.requests()[opCreate]; n < 25 || n > 32 {
			t.Errorf("tried %d times in a minute", n)
		}
		a.end()
	})
}

func TestLeaderThatFindsAnotherHolderStepsDownAtOnce(t *testing.T) {
	for _, holder := range []string{"usurper", ""} {
		synctest.Test(t, func(t *testing.T) {
			s, a, b := twoReplicas(t)
			b.end()
			o, _ := s.get("lease")
			o.record.HolderIdentity = holder
			if _, err := s.put("lease", o); err != nil {
				t.Fatal(err)
			}
			elapse(1999 * time.Millisecond)
			requireLeader(t, a)
			elapse(time.Millisecond)
			if !errors.Is(context.Cause(a.terms[0]), ErrLeaseLost) {
				t.Errorf("the record names %q, and the cause is %v", holder, context.Cause(a.terms[0]))
			}
			if l := a.Leader(); l.Identity != cmp.Or(holder, "a") { // a takes it again
				t.Errorf("the record names %q, and the leader is said to be %+v", holder, l)
			}
			a.end()
		})
	}
}

func TestDeletedLeaseIsPutBackByItsLeaderAndRespectedByTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, a, b := twoReplicas(t)
		s.delete("lease")
		for range 60 {
			elapse(500 * time.Millisecond)
			requireLeader(t, a)
			requireStandby(t, b)
		}
		if s.holder("lease") != "a" {
			t.Errorf("held by %q", s.holder("lease"))
		}
		// Without its leader it is free once it would have expired.
		a.lock.obstruct(refused)
		s.delete("lease")
		elapse(12 * time.Second)
		requireStandby(t, b)
		elapse(5 * time.Second)
		requireLeader(t, b)
		b.end()
		a.end()
	})
}

func TestLeaderWhoseWatchSaysThatItLeadsNoMoreStepsDownAtOnce(t *testing.T) {
	for _, holder := range []string{"usurper", ""} {
		synctest.Test(t, func(t *testing.T) {
			s := newStore()
			a := newReplica(t, newLock(s, "lease", "a"), withWatch(s)).start()
			b := newReplica(t, newLock(s, "lease", "b"), withWatch(s))
			elapse(777 * time.Millisecond)
			requireLeader(t, a)
			b.start()
			synctest.Wait()
			a.lock.obstruct(only(opUpdate, refused)) // it does not lead again
			o, _ := s.get("lease")
			o.record.HolderIdentity = holder
			if _, err := s.put("lease", o); err != nil {
				t.Fatal(err)
			}
			synctest.Wait() // no time passes
			requireStandby(t, a)
			if cause := context.Cause(a.lastTerm()); !errors.Is(cause, ErrLeaseLost) {
				t.Errorf("the cause is %v", cause)
			}
			if l := a.Leader(); l.Identity != cmp.Or(holder, "b") {
				t.Errorf("the record names %q, and the leader is said to be %+v", holder, l)
			}
			b.end()
			a.end()
		})
	}
}

func TestDeletedLeaseIsPutBackAtOnceIfTheWatchSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		a := newReplica(t, newLock(s, "lease", "a"), withWatch(s)).start()
		elapse(777 * time.Millisecond)
		s.delete("lease")
		synctest.Wait() // no time passes
		if holder := s.holder("lease"); holder != "a" {
			t.Errorf("held by %q", holder)
		}
		requireLeader(t, a)
		if a.led() != 1 {
			t.Errorf("led %d times", a.led())
		}
		a.end()
	})
}

func TestLeaderLooksAtMostFiveTimesASecondWhateverTheWatchSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newReplica(t, newLock(newStore(), "lease", "a"), func(o *Options) {
			o.Watch = func(ctx context.Context, changed func()) error {
				for ctx.Err() == nil {
					changed()
					time.Sleep(time.Millisecond)
				}
				return nil
			}
		}).start()
		elapse(time.Minute)
		requireLeader(t, a)
		if n := a.lock.requests(); n[opGet] < 290 || n[opGet] > 302 || n[opUpdate] < 29 || n[opUpdate] > 30 {
			t.Errorf("in a minute the leader asked %v", n)
		}
		a.end()
	})
}

// The lock knows an answer that came too late, and would write upon it.
func TestLeaderOverwritesNothingThatItHasReadTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		hint := make(chan struct{})
		a := newReplica(t, newLock(s, "lease", "a"), func(o *Options) {
			o.Watch = func(ctx context.Context, changed func()) error {
				for {
					select {
					case <-hint:
						changed()
					case <-ctx.Done():
						return nil
					}
				}
			}
		}).start()
		elapse(time.Second)
		o, _ := s.get("lease")
		o.record.HolderIdentity = "usurper"
		if _, err := s.put("lease", o); err != nil {
			t.Fatal(err)
		}
		a.lock.obstruct(only(opGet, func(_ context.Context, _ operation, ask func() error) error {
			time.Sleep(a.options.RequestTimeout + time.Millisecond)
			return ask()
		}))
		hint <- struct{}{}
		elapse(3 * time.Second)
		a.lock.obstruct(nil)
		elapse(4 * time.Second)
		if holder := s.holder("lease"); holder != "usurper" {
			t.Errorf("held by %q", holder)
		}
		requireStandby(t, a)
		a.end()
	})
}

// Everything that a former leader could still run is left out: whoever asks
// first after it is woken up gets the right answer.
func TestStalledLeaderKnowsByTheClockAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, err := New(options(newLock(newStore(), "lease", "a")))
		if err != nil {
			t.Fatal(err)
		}
		stalled := newTerm(t.Context(), now(), e.options.RenewDeadline)
		stalled.alarm.Stop()
		e.term.Store(stalled)
		working := leadership{stalled.context, stalled}

		time.Sleep(10*time.Second - 1)
		if !e.Leading() || working.Err() != nil {
			t.Fatal("over before the deadline")
		}
		time.Sleep(1 * time.Nanosecond)
		if stalled.context.Err() != nil {
			t.Fatal("somebody was awake")
		}
		if working.Err() == nil {
			t.Error("the context's error does not ask the clock")
		}
		if e.Leading() || !errors.Is(context.Cause(working), ErrLeaseLost) {
			t.Errorf("leads, cause %v", context.Cause(working))
		}
		if stalled.extend(now()) || e.Leading() {
			t.Error("a renewal that comes too late revives the term")
		}
	})
}

// The clocks are read one after the other, so an alarm may find a little time
// left. It must ring again, since nobody else may ask.
func TestAlarmThatIsEarlyRingsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		working := newTerm(t.Context(), now(), 10*time.Second)
		working.alarm.Reset(10*time.Second - time.Microsecond)
		elapse(10 * time.Second)
		select {
		case <-working.ended:
		default:
			t.Error("the term goes on")
		}
	})
}

func TestDoneOfAStalledLeadersContextAsksTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stalled := newTerm(t.Context(), now(), time.Second)
		stalled.alarm.Stop()
		time.Sleep(time.Second)
		select {
		case <-(leadership{stalled.context, stalled}).Done():
		default:
			t.Error("not done")
		}
	})
}

// A leader that was suspended: the monotonic clock stood still, the time since
// boot did not.
func TestTimeSinceBootCountsWhereItIsLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := now()
		before.boot -= time.Minute
		if sinceBoot() != 0 && before.elapsed() < time.Minute {
			t.Errorf("a suspended minute is %s", before.elapsed())
		}
		before = now()
		time.Sleep(time.Hour) // in a bubble no time since boot
		if before.elapsed() != time.Hour {
			t.Errorf("an hour is %s", before.elapsed())
		}
	})
}

// What client-go's release does to the successor: it reads the record, but
// checks the holder that it remembers.
func TestStalledLeaderDoesNotClearItsSuccessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, a, b := twoReplicas(t)
		letGo := make(chan struct{})
		a.lock.obstruct(stuck(letGo))
		elapse(20 * time.Second)
		requireLeader(t, b)
		requireStandby(t, a)
		a.stop()
		a.lock.obstruct(nil)
		close(letGo)
		<-a.result
		if holder := s.holder("lease"); holder != "b" {
			t.Errorf("held by %q", holder)
		}
		requireLeader(t, b)
		b.end()
	})
}

// As above, with the successor coming between the read and the write.
func TestReleaseDoesNotClearWhoComesBetweenItsReadAndItsWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		a := newReplica(t, newLock(s, "lease", "a")).start()
		synctest.Wait()
		a.lock.obstruct(only(opUpdate, func(_ context.Context, _ operation, ask func() error) error {
			o, _ := s.get("lease")
			o.record.HolderIdentity = "b"
			if _, err := s.put("lease", o); err != nil {
				t.Error(err)
			}
			return ask()
		}))
		a.end()
		if holder := s.holder("lease"); holder != "b" {
			t.Errorf("held by %q", holder)
		}
	})
}

func TestOneProcessLeadsAndLosesAnyNumberOfTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		a := newReplica(t, newLock(s, "lease", "a")).start()
		const times = 10
		for n := range times {
			synctest.Wait()
			requireLeader(t, a)
			if a.led() != n+1 {
				t.Fatalf("led %d times, not %d", a.led(), n+1)
			}
			a.lock.obstruct(refused)
			elapse(30 * time.Second)
			requireStandby(t, a)
			a.lock.obstruct(nil)
			elapse(2400 * time.Millisecond)
		}
		a.end()
		want := slices.Repeat([]string{"became leader", "stopped leading"}, times+1)
		if events := a.lock.recorded(); !slices.Equal(events, want) {
			t.Errorf("events %v", events)
		}
		if changes := testutil.ToFloat64(a.metrics.transitions.WithLabelValues("lost")); changes != times {
			t.Errorf("%v losses are counted", changes)
		}
	})
}

func TestLostLeaseEndsRunIfThatIsTheOption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		a := newReplica(t, newLock(s, "lease", "a"), func(o *Options) { o.OnLost = Exit }).start()
		synctest.Wait()
		a.lock.obstruct(only(opUpdate, refused))
		if err := <-a.result; !errors.Is(err, ErrLeaseLost) {
			t.Errorf("the end is %v", err)
		}
		a.stop()
	})
}

func TestWorkThatReturnsEndsRun(t *testing.T) {
	failure := errors.New("out of paper")
	for _, want := range []error{nil, failure} {
		synctest.Test(t, func(t *testing.T) {
			s := newStore()
			e, err := New(options(newLock(s, "lease", "a")))
			if err != nil {
				t.Fatal(err)
			}
			if err := e.Run(t.Context(), func(context.Context) error { return want }); !errors.Is(err, want) {
				t.Errorf("the end is %v, not %v", err, want)
			}
			if s.holder("lease") != "" {
				t.Error("not released")
			}
		})
	}
}

func TestWorkThatFailsAfterALossEndsRun(t *testing.T) {
	failure := errors.New("out of paper")
	synctest.Test(t, func(t *testing.T) {
		lock := newLock(newStore(), "lease", "a")
		e, err := New(options(lock))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		err = e.Run(ctx, func(ctx context.Context) error {
			lock.obstruct(only(opUpdate, refused))
			<-ctx.Done()
			return failure
		})
		if !errors.Is(err, failure) {
			t.Errorf("the end is %v", err)
		}
	})
}

// A process that stops loses its Lease if its work takes too long. It stops all the
// same.
func TestLossDuringAStopIsNoError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lock := newLock(newStore(), "lease", "a")
		o := options(lock)
		o.OnLost = Exit
		e, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		err = e.Run(ctx, func(ctx context.Context) error {
			lock.obstruct(only(opUpdate, refused))
			stop()
			elapse(time.Minute)
			return ctx.Err()
		})
		if err != nil {
			t.Errorf("the end is %v", err)
		}
		if lost := testutil.ToFloat64(e.metrics.transitions.WithLabelValues("lost")); lost != 1 {
			t.Errorf("%v losses are counted", lost)
		}
	})
}

func TestLeaseOfWorkThatGoesOnIsNotReleased(t *testing.T) {
	for name, lead := range map[string]func(context.Context) error{
		"says so": func(context.Context) error { return ErrNotStopped },
		"says so when it is told": func(ctx context.Context) error {
			<-ctx.Done()
			return fmt.Errorf("%w: %w", ErrNotStopped, ctx.Err())
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newStore()
			e, err := New(options(newLock(s, "lease", "a")))
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := e.Run(ctx, lead); !errors.Is(err, ErrNotStopped) {
				t.Errorf("%s: the end is %v", name, err)
			}
			if s.holder("lease") != "a" {
				t.Errorf("%s: released", name)
			}
		})
	}
}

func TestWorkThatReturnsWhyItWasToldHasNotFailed(t *testing.T) {
	reason := errors.New("the office closes")
	told, cancel := context.WithCancelCause(t.Context())
	cancel(reason)
	for _, err := range []error{context.Canceled, reason, nil} {
		if got := unlessTold(told, err); got != nil {
			t.Errorf("%v is taken for %v", err, got)
		}
	}
	if got := unlessTold(t.Context(), context.Canceled); got == nil {
		t.Error("the end of another context is taken for that of its own")
	}
}

// FINDINGS of others: a stop that comes while the lease is being acquired.
func TestWorkIsNotBegunDuringAStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		l := newLock(s, "lease", "a")
		acquiring, arrive := make(chan struct{}), make(chan struct{})
		l.obstruct(only(opCreate, func(_ context.Context, _ operation, ask func() error) error {
			close(acquiring)
			<-arrive
			return ask()
		}))
		a := newReplica(t, l).start()
		<-acquiring
		a.stop()
		synctest.Wait()
		close(arrive)
		if err := <-a.result; err != nil {
			t.Error(err)
		}
		if a.led() != 0 {
			t.Error("the work was begun")
		}
		if holder := s.holder("lease"); holder != "" {
			t.Errorf("held by %q", holder)
		}
	})
}

// An HTTP request returns when it is cancelled, although the server has it.
func TestAcquisitionThatIsOnItsWayAtAStopIsWaitedForAndReleased(t *testing.T) {
	for op, before := range map[operation]*object{opCreate: nil, opUpdate: {}} {
		synctest.Test(t, func(t *testing.T) {
			s := newStore()
			if before != nil {
				if _, err := s.put("lease", *before); err != nil {
					t.Fatal(err)
				}
			}
			l := newLock(s, "lease", "a")
			l.obstruct(only(op, func(ctx context.Context, _ operation, ask func() error) error {
				l.obstruct(nil)
				return abandoned(ctx, func() error {
					time.Sleep(20 * time.Millisecond)
					return ask()
				})
			}))
			a := newReplica(t, l).start()
			synctest.Wait()
			if err := a.end(); err != nil {
				t.Error(err)
			}
			elapse(time.Second)
			if holder := s.holder("lease"); holder != "" {
				t.Errorf("%s: held by %q", op, holder)
			}
			if a.led() != 0 {
				t.Errorf("%s: the work was begun", op)
			}
		})
	}
}

// In all, if the apiserver hangs from the acquisition on.
func TestStopOfAStandbyTakesNoLongerThanARelease(t *testing.T) {
	for name, hangs := range map[string]func(<-chan struct{}) way{
		"until its context is over": func(<-chan struct{}) way { return hanging },
		"for ever":                  stuck,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLock(newStore(), "lease", "a")
				end := make(chan struct{})
				defer close(end)
				l.obstruct(only(opCreate, func(ctx context.Context, op operation, ask func() error) error {
					l.obstruct(hangs(end))
					return hangs(end)(ctx, op, ask)
				}))
				a := newReplica(t, l).start()
				synctest.Wait()
				began := time.Now()
				a.end()
				if took := time.Since(began); took > a.options.ReleaseTimeout {
					t.Errorf("it took %s", took)
				}
			})
		})
	}
}

// The watch and the one who is told of leaders are somebody else's code.
func TestStopLeavesBehindWhatDoesNotReturn(t *testing.T) {
	end := make(chan struct{})
	for name, hangs := range map[string]func(*Options){
		"watch":     func(o *Options) { o.Watch = func(context.Context, func()) error { <-end; return nil } },
		"newLeader": func(o *Options) { o.OnNewLeader = func(Leader) { <-end } },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				end = make(chan struct{})
				defer close(end)
				s := newStore()
				logged := &log{}
				a := newReplica(t, newLock(s, "lease", "a"), hangs).startIn(logged.context(t.Context()))
				elapse(time.Minute)
				requireLeader(t, a)
				began := time.Now()
				a.end()
				if took := time.Since(began); took > lastMoment {
					t.Errorf("it took %s", took)
				}
				if holder := s.holder("lease"); holder != "" {
					t.Errorf("held by %q", holder)
				}
			})
		})
	}
}

// Whoever it was made upon: it comes after the process has gone.
func TestAcquisitionThatWasGivenUpDoesNotTakeEffectAfterAStop(t *testing.T) {
	for name, held := range map[string]*resourcelock.LeaderElectionRecord{
		"released": {LeaseDurationSeconds: 1},
		"expired":  {HolderIdentity: "gone", LeaseDurationSeconds: 15},
		"missing":  nil,
	} {
		// The stop comes while it waits to read again, and while it reads.
		for _, reading := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s, op := newStore(), opCreate
					if held != nil {
						op = opUpdate
						if _, err := s.put("lease", object{record: *held}); err != nil {
							t.Fatal(err)
						}
					}
					l := newLock(s, "lease", "a")
					given, letGo := 0, make(chan struct{})
					l.obstruct(only(op, func(ctx context.Context, _ operation, ask func() error) error {
						given++
						return abandoned(ctx, func() error {
							<-letGo
							return ask()
						})
					}))
					a := newReplica(t, l).start()
					elapse(15*time.Second + 5*time.Second + time.Millisecond) // two time-outs, of which the first has it read again at once
					if given < 2 {
						t.Fatalf("tried %d times", given)
					}
					l.obstruct(nil)
					if reading {
						l.obstruct(only(opGet, func(_ context.Context, _ operation, ask func() error) error {
							l.obstruct(nil)
							err := ask()
							a.stop()
							return err
						}))
						<-a.result
					} else {
						a.end()
					}
					close(letGo)
					synctest.Wait()
					if holder := s.holder("lease"); holder != "" {
						t.Errorf("held by %q", holder)
					}
					if a.led() != 0 {
						t.Error("the work was begun")
					}
				})
			})
		}
	}
}

// It is known that such an acquisition has not taken effect.
func TestStopAfterARefusedAcquisitionWritesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		if _, err := s.put("lease", object{}); err != nil {
			t.Fatal(err)
		}
		l := newLock(s, "lease", "a")
		l.obstruct(only(opUpdate, func(context.Context, operation, func() error) error {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "leases"}, "lease", errBroken)
		}))
		a := newReplica(t, l).start()
		elapse(time.Minute)
		before, began := l.requests(), time.Now()
		a.end()
		if after := l.requests(); after[opUpdate] != before[opUpdate] || time.Since(began) != 0 {
			t.Errorf("asked %v, before %v, for %s", after, before, time.Since(began))
		}
	})
}

func TestRunTwiceAtOnceIsAnErrorAndAgainIsNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newReplica(t, newLock(newStore(), "lease", "a")).start()
		synctest.Wait()
		if err := a.Run(t.Context(), a.lead); err == nil {
			t.Error("runs twice")
		}
		a.end()
		a.start()
		synctest.Wait()
		requireLeader(t, a)
		a.end()
	})
}

func TestElectorThatHasFollowedCanDoSoAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, err := New(options(newLock(newStore(), "lease", "a")))
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if err := e.Follow(ctx); err != nil {
				t.Error(err)
			}
			cancel()
		}
	})
}

func TestProcessThatHasHandedOverStillKnowsWhoLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := twoReplicas(t)
		b.lock.announces = Announcement{Address: "b:443", CertificateSHA256: "5a"}
		if err := a.end(); err != nil {
			t.Fatal(err)
		}
		before := a.lock.requests()
		following, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- a.Follow(following) }()

		elapse(5 * time.Second)
		requireLeader(t, b)
		if l := a.Leader(); l != (Leader{"b", b.lock.announces}) {
			t.Errorf("the leader is said to be %+v", l)
		}
		if err := a.Run(t.Context(), a.lead); err == nil {
			t.Error("takes part while it follows")
		}
		b.lock.obstruct(refused)
		elapse(20 * time.Second)
		if l := a.Leader(); l != (Leader{}) {
			t.Errorf("the leader is said to be %+v, whose lease has expired", l)
		}
		if after := a.lock.requests(); after[opUpdate] != before[opUpdate] || after[opCreate] != before[opCreate] {
			t.Errorf("takes part: %v requests before, %v after", before, after)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		b.end()
	})
}

func TestProcessThatFollowsIsToldThatTheLeaderItKnewLeadsNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		a := newReplica(t, newLock(s, "lease", "a"), withWatch(s)).start()
		synctest.Wait()
		var reported []Leader
		b := newReplica(t, newLock(s, "lease", "b"), withWatch(s), func(o *Options) {
			o.OnNewLeader = func(l Leader) { reported = append(reported, l) }
		}).start()
		synctest.Wait()
		b.end()
		following, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- b.Follow(following) }()
		elapse(time.Second)
		a.end()
		synctest.Wait()
		if want := []Leader{{Identity: "a"}, {}}; !slices.Equal(reported, want) {
			t.Errorf("reported %+v", reported)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestWorkThatGoesOnAfterALossKnowsTheNewLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := twoReplicas(t)
		a.finish = time.Minute
		a.lock.obstruct(only(opUpdate, refused))
		elapse(30 * time.Second)
		requireLeader(t, b)
		requireStandby(t, a)
		if l := a.Leader(); l.Identity != "b" {
			t.Errorf("the leader is said to be %+v", l)
		}
		a.end()
		b.end()
	})
}

func TestNewLeadersAreReportedOnceEachWithWhatTheyAnnounce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		var mu sync.Mutex
		var reported []Leader
		watcher := newReplica(t, newLock(s, "lease", "watcher"), withWatch(s), func(o *Options) {
			o.OnNewLeader = func(l Leader) {
				mu.Lock()
				defer mu.Unlock()
				reported = append(reported, l)
			}
		})
		lockOf := func(identity string) *memoryLock {
			l := newLock(s, "lease", identity)
			l.announces = Announcement{Address: identity + ":443", CertificateSHA256: "5a"}
			return l
		}
		a := newReplica(t, lockOf("a"), withWatch(s)).start()
		synctest.Wait()
		watcher.start()
		elapse(time.Minute) // 30 renewals
		watcher.lock.obstruct(only(opUpdate, refused))
		a.end()
		elapse(time.Minute)
		b := newReplica(t, lockOf("b")).start()
		elapse(time.Minute)
		b.lock.obstruct(refused)
		elapse(time.Minute)
		watcher.end()
		mu.Lock()
		defer mu.Unlock()
		want := []Leader{{"a", Announcement{"a:443", "5a"}}, {}, {"b", Announcement{"b:443", "5a"}}, {}}
		if !slices.Equal(reported, want) {
			t.Errorf("reported %+v", reported)
		}
		b.end()
	})
}

func TestStandbyTellsWhenTheLeaderHasLastRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		a := newReplica(t, newLock(s, "lease", "a")).start()
		synctest.Wait()
		b := newReplica(t, newLock(s, "lease", "b"), withWatch(s))
		if at := b.Renewed(); !at.IsZero() {
			t.Errorf("renewed at %s, before the first read", at)
		}
		b.start()
		elapse(time.Minute)
		if ago := time.Since(b.Renewed()); ago > a.options.RetryPeriod {
			t.Errorf("renewed %s ago", ago)
		}
		a.lock.obstruct(hanging)
		elapse(8 * time.Second)
		if ago := time.Since(b.Renewed()); ago < 8*time.Second {
			t.Errorf("renewed %s ago", ago)
		}
		a.end()
		b.end()
	})
}

func TestWatchdogBarksAtALeaderThatDoesNotStepDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := twoReplicas(t)
		a.finish = time.Minute
		check := a.Watchdog(20 * time.Second)
		elapse(time.Minute)
		a.lock.obstruct(refused)
		elapse(30 * time.Second)
		if err := check(nil); err != nil {
			t.Error(err)
		}
		elapse(1)
		elapse(2 * time.Second)
		if err := check(nil); err == nil {
			t.Error("no bark")
		}
		if b.Watchdog(0)(nil) != nil {
			t.Error("barks at another")
		}
		elapse(time.Minute)
		if err := check(nil); err != nil {
			t.Errorf("after it has stepped down: %v", err)
		}
		b.end()
		a.end()
	})
}

// The last renewal would have been valid for as long as the watchdog waits.
func TestWatchdogCountsFromALossBeforeTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewPedanticRegistry()
		s := newStore()
		a := newReplica(t, newLock(s, "lease", "a"), withWatch(s), func(o *Options) { o.Registerer = registry })
		a.finish = time.Minute
		a.start()
		elapse(777 * time.Millisecond)
		requireLeader(t, a)
		o, _ := s.get("lease")
		o.record.HolderIdentity = "usurper"
		if _, err := s.put("lease", o); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // no time passes
		requireStandby(t, a)
		check := a.Watchdog(10 * time.Second)
		elapse(10 * time.Second)
		if err := check(nil); err != nil {
			t.Error(err)
		}
		want := `# HELP eventd_election_deadline_seconds Time until leadership ends without a renewal; negative while leader work continues past it; NaN on a standby.
# TYPE eventd_election_deadline_seconds gauge
eventd_election_deadline_seconds -10
`
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "eventd_election_deadline_seconds"); err != nil {
			t.Error(err)
		}
		elapse(1)
		if err := check(nil); err == nil {
			t.Error("no bark")
		}
		a.end()
	})
}

func TestWatchdogIsQuietDuringALongPlannedStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newReplica(t, newLock(newStore(), "lease", "a"))
		a.finish = 5 * time.Minute
		a.start()
		synctest.Wait()
		a.stop()
		elapse(4 * time.Minute)
		if err := a.Watchdog(0)(nil); err != nil {
			t.Error(err)
		}
		<-a.result
	})
}

func TestMetricsTellWhatHappened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewPedanticRegistry()
		s := newStore()
		a := newReplica(t, newLock(s, "lease", "a"), func(o *Options) { o.Registerer = registry }).start()
		elapse(5 * time.Second)
		want := `# HELP eventd_election_deadline_seconds Time until leadership ends without a renewal; negative while leader work continues past it; NaN on a standby.
# TYPE eventd_election_deadline_seconds gauge
eventd_election_deadline_seconds 9
# HELP eventd_election_leading 1 while this process leads, otherwise 0.
# TYPE eventd_election_leading gauge
eventd_election_leading 1
# HELP eventd_election_renewals_failed_total Lease renewals that were not acknowledged.
# TYPE eventd_election_renewals_failed_total counter
eventd_election_renewals_failed_total 0
# HELP eventd_election_transitions_total Changes of role: became leader, lost or released the lease.
# TYPE eventd_election_transitions_total counter
eventd_election_transitions_total{transition="became"} 1
eventd_election_transitions_total{transition="lost"} 0
eventd_election_transitions_total{transition="released"} 0
# HELP eventd_election_watch_restarts_total Restarts of the watch of the lease.
# TYPE eventd_election_watch_restarts_total counter
eventd_election_watch_restarts_total 0
`
		err := testutil.GatherAndCompare(registry, strings.NewReader(want), "eventd_election_deadline_seconds", "eventd_election_leading",
			"eventd_election_renewals_failed_total", "eventd_election_transitions_total", "eventd_election_watch_restarts_total")
		if err != nil {
			t.Error(err)
		}
		if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
			t.Errorf("%v %v", problems, err)
		}
		a.finish = time.Minute
		a.lock.obstruct(refused)
		elapse(12 * time.Second)
		want = `# HELP eventd_election_deadline_seconds Time until leadership ends without a renewal; negative while leader work continues past it; NaN on a standby.
# TYPE eventd_election_deadline_seconds gauge
eventd_election_deadline_seconds -3
`
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "eventd_election_deadline_seconds"); err != nil {
			t.Error(err)
		}
		a.end()
	})
}

func TestOptionsAreValidatedOneByOne(t *testing.T) {
	valid := options(newLock(newStore(), "lease", "a"))
	if err := valid.Validate(); err != nil {
		t.Fatal(err)
	}
	for want, spoil := range map[string]func(*Options){
		"a lock is required":                                         func(o *Options) { o.Lock = nil },
		"identity must not be empty":                                 func(o *Options) { o.Lock = newLock(nil, "lease", "") },
		"whole number of seconds, and at least 1s, not 15.5s":        func(o *Options) { o.LeaseDuration = 15500 * time.Millisecond },
		"whole number of seconds, and at least 1s, not 596524h":      func(o *Options) { o.LeaseDuration = 596524 * time.Hour },
		"the lease duration (10s) must be greater than the renew":    func(o *Options) { o.LeaseDuration = 10 * time.Second },
		"the renew deadline (2.4s) must be greater than 1.2 times":   func(o *Options) { o.RenewDeadline, o.RequestTimeout = 2400*time.Millisecond, time.Second },
		"the retry period must be greater than 0, not 0s":            func(o *Options) { o.RetryPeriod = 0 },
		"the request timeout must be greater than 0":                 func(o *Options) { o.RequestTimeout = 0 },
		"the request timeout (10s) must be less than the renew":      func(o *Options) { o.RequestTimeout = 10 * time.Second },
		"the release timeout must be greater than 0, not -1s":        func(o *Options) { o.ReleaseTimeout = -time.Second },
		`what follows a lost lease must be "standby" or "exit", not`: func(o *Options) { o.OnLost = "panic" },
	} {
		o := valid
		spoil(&o)
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}
