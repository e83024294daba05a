package election

import (
	"context"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/eventd/eventd/test/fakelock"
)

func TestLeaderRenewsForAsLongAsItLives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, a, b := twoReplicas(t)
		requireSteady(t, 10*time.Minute, a, b)
		if n := a.lock.Requests(); n[fakelock.Update] < 299 || n[fakelock.Update] > 301 || n[fakelock.Get] != 1 {
			t.Errorf("requests of the leader in 10 minutes: %v", n)
		}
		if n := b.lock.Requests(); n[fakelock.Get] < 250 || n[fakelock.Get] > 301 || n[fakelock.Update] != 0 {
			t.Errorf("requests of the standby in 10 minutes: %v", n)
		} else if b.end(); !maps.Equal(b.lock.Requests(), n) {
			t.Errorf("requests of the standby after its stop: %v, before %v", b.lock.Requests(), n)
		}
		o, _ := s.Get("lease")
		if ago := time.Since(o.Record.AcquireTime.Time); o.Record.LeaderTransitions != 0 || ago < 10*time.Minute || ago > 11*time.Minute {
			t.Errorf("renewals changed the record to %+v", o.Record)
		}
	})
}

// disturbances of a write after which the same process still holds the Lease.
var disturbances = map[string]func(s *fakelock.Store) fakelock.Interceptor{
	"conflict":    func(s *fakelock.Store) fakelock.Interceptor { return fakelock.Before(func() { touch(s) }) },
	"lost answer": func(*fakelock.Store) fakelock.Interceptor { return fakelock.LoseAnswer },
}

func TestLeaderKeepsTheLeaseDespiteConflictsAndLostAnswers(t *testing.T) {
	each(t, disturbances, func(t *testing.T, disturb func(*fakelock.Store) fakelock.Interceptor) {
		s, a, b := twoReplicas(t)
		disturbed := disturb(s)
		updates := 0
		a.lock.Intercept(fakelock.Only(fakelock.Update, func(ctx context.Context, op fakelock.Operation, send func() error) error {
			if updates++; updates%2 == 1 {
				return disturbed(ctx, op, send)
			}
			return send()
		}))
		requireSteady(t, time.Minute, a, b)
		if failed := testutil.ToFloat64(a.metrics.failures); failed != 0 || a.led() != 1 {
			t.Errorf("%v renewals failed, led %d times", failed, a.led())
		}
	})
}

func TestRenewalThatIsAnsweredLateCountsFromItsBeginning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, _ := twoReplicas(t)
		a.lock.Intercept(func(_ context.Context, _ fakelock.Operation, send func() error) error {
			time.Sleep(time.Second)
			defer time.Sleep(time.Second)
			return send()
		}) // begins at 2 s, is answered at 4 s
		elapse(3 * time.Second)
		a.lock.Intercept(fakelock.Fail)
		elapse(9*time.Second - 1)
		requireLeader(t, a)
		elapse(1)
		requireStandby(t, a)
	})
}

// Attempts come sooner, and have shorter timeouts, as the deadline approaches.
func TestLeaderKeepsTheLeaseIfTheApiserverIsBackWithinTheRenewDeadline(t *testing.T) {
	for back := 2 * time.Second; back <= 9600*time.Millisecond; back += 200 * time.Millisecond {
		t.Run("back after "+back.String(), func(t *testing.T) {
			each(t, outages, func(t *testing.T, fails fakelock.Interceptor) {
				_, a, b := twoReplicas(t)
				a.lock.Intercept(fails)
				elapse(back)
				a.lock.Intercept(nil)
				requireSteady(t, time.Minute, a, b)
				if a.led() != 1 {
					t.Errorf("led %d times", a.led())
				}
			})
		})
	}
}

func TestRenewalsThatFailAreNotTriedWithoutAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a := oneReplica(t)
		a.lock.Intercept(fakelock.Fail)
		elapse(10*time.Second - 1)
		requireLeader(t, a)
		if n := testutil.ToFloat64(a.metrics.failures); n < 10 || n > 20 {
			t.Errorf("tried %v times until the deadline", n)
		}
	})
}

// That the lease is another's, or that the work is over, is no failure of a renewal.
func TestWhichRenewalsHaveFailed(t *testing.T) {
	type test struct {
		way    fakelock.Interceptor
		holder string // in the lock by then
		over   bool   // the work
		failed float64
	}
	each(t, map[string]test{
		"succeeds":            {nil, "a", false, 0},
		"fails":               {fakelock.Fail, "a", false, 1},
		"is not answered":     {fakelock.Hang, "a", false, 1},
		"is another's":        {nil, "b", false, 0},
		"the work is over":    {fakelock.Hang, "a", true, 0},
		"and is another's":    {nil, "b", true, 0},
		"fails, and is over":  {fakelock.Fail, "a", true, 0},
		"fails, is another's": {fakelock.Only(fakelock.Update, fakelock.Fail), "b", false, 0},
	}, func(t *testing.T, test test) {
		s := fakelock.NewStore()
		r := newReplica(t, newLock(s, "lease", "a"))
		start, ok := r.tryAcquire(t.Context())
		if !ok {
			t.Fatal("not acquired")
		}
		term := newTerm(t.Context(), start, r.options.RenewDeadline)
		defer term.end(errStepDown)
		if test.holder != "a" {
			forceHolder(s, test.holder)
		}
		r.lock.Intercept(test.way)
		working, cancel := context.WithCancelCause(r.logged.context(t.Context()))
		defer cancel(nil)
		if test.over {
			cancel(errStopping)
		}
		wait := r.renew(working, term)
		if got := testutil.ToFloat64(r.metrics.failures); got != test.failed {
			t.Errorf("%v failures", got)
		}
		if test.failed > 0 {
			r.logged.require(t, "Could not renew the lease")
		} else {
			r.logged.require(t)
		}
		if wait > r.options.RetryPeriod || wait <= 0 {
			t.Errorf("the next attempt is after %s", wait)
		}
	})
}

func TestLeaderReadsAtMostFiveTimesASecondWhateverTheWatchHints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a := oneReplica(t, func(o *Options) { o.Watch = hinting(time.Millisecond) })
		elapse(time.Minute)
		requireLeader(t, a)
		if n := a.lock.Requests(); n[fakelock.Get] < 290 || n[fakelock.Get] > 302 || n[fakelock.Update] < 29 || n[fakelock.Update] > 30 {
			t.Errorf("requests of the leader in a minute: %v", n)
		}
	})
}

// The lock has received the late answer, and would overwrite that version.
func TestLeaderDoesNotOverwriteARecordThatWasReadTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hint func()
		s, a := oneReplica(t, func(o *Options) {
			o.Watch = func(ctx context.Context, changed func()) error {
				hint = changed
				<-ctx.Done()
				return nil
			}
		})
		elapse(time.Second)
		forceHolder(s, "usurper")
		a.lock.Intercept(fakelock.Only(fakelock.Get, fakelock.Before(func() { time.Sleep(a.options.RequestTimeout + time.Millisecond) })))
		hint()
		elapse(3 * time.Second)
		a.lock.Intercept(nil)
		elapse(4 * time.Second)
		requireHolder(t, s, "usurper")
		requireStandby(t, a)
	})
}

func TestDeletedLeaseIsCreatedAgainByItsLeaderAndRespectedByTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, a, b := twoReplicas(t)
		s.Delete("lease")
		requireSteady(t, 30*time.Second, a, b)
		requireHolder(t, s, "a")
		// Without its leader it is free once it would have expired.
		a.lock.Intercept(fakelock.Fail)
		s.Delete("lease")
		elapse(12 * time.Second)
		requireStandby(t, b)
		elapse(5 * time.Second)
		requireLeader(t, b)
	})
}

func TestDeletedLeaseIsCreatedAgainAtOnceAfterAHint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, a := oneReplica(t, watching)
		elapse(777 * time.Millisecond)
		s.Delete("lease")
		synctest.Wait() // no time passes
		requireHolder(t, s, "a")
		requireLeader(t, a)
		if a.led() != 1 {
			t.Errorf("led %d times", a.led())
		}
	})
}
