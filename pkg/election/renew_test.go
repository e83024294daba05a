package election

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/eventd/eventd/test/fakelock"
)

func TestLeaderRenewsForAsLongAsItLives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, a, b := twoReplicas(t)
		for range 600 {
			elapse(time.Second)
			requireLeader(t, a)
			requireStandby(t, b)
		}
		if n := a.lock.Requests(); n[fakelock.Update] < 299 || n[fakelock.Update] > 301 || n[fakelock.Get] != 1 {
			t.Errorf("requests of the leader in 10 minutes: %v", n)
		}
		if n := b.lock.Requests(); n[fakelock.Get] < 250 || n[fakelock.Get] > 301 || n[fakelock.Update] != 0 {
			t.Errorf("requests of the standby in 10 minutes: %v", n)
		}
		o, _ := s.Get("lease")
		if o.Record.LeaderTransitions != 0 || time.Since(o.Record.AcquireTime.Time) < 10*time.Minute {
			t.Errorf("renewals changed the record to %+v", o.Record)
		}
		b.end()
		a.end()
	})
}

func TestLeaderKeepsTheLeaseDespiteConflictsAndLostAnswers(t *testing.T) {
	for name, disturb := range map[string]func(s *fakelock.Store) fakelock.Interceptor{
		"conflict": func(s *fakelock.Store) fakelock.Interceptor {
			return func(_ context.Context, _ fakelock.Operation, send func() error) error {
				touch(s)
				return send()
			}
		},
		"lost answer": func(*fakelock.Store) fakelock.Interceptor { return fakelock.LoseAnswer },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, a, b := twoReplicas(t)
				disturbed := disturb(s)
				updates := 0
				a.lock.Intercept(fakelock.Only(fakelock.Update, func(ctx context.Context, op fakelock.Operation, send func() error) error {
					if updates++; updates%2 == 1 {
						return disturbed(ctx, op, send)
					}
					return send()
				}))
				for range 60 {
					elapse(time.Second)
					requireLeader(t, a)
				}
				if failed := testutil.ToFloat64(a.metrics.failures); failed != 0 || a.led() != 1 {
					t.Errorf("%v renewals failed, led %d times", failed, a.led())
				}
				b.end()
				a.end()
			})
		})
	}
}

func TestRenewalThatIsAnsweredLateCountsFromItsBeginning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := twoReplicas(t)
		a.lock.Intercept(fakelock.Delay(time.Second)) // begins at 2 s, is answered at 4 s
		elapse(3 * time.Second)
		a.lock.Intercept(fakelock.Fail)
		elapse(9*time.Second - 1)
		requireLeader(t, a)
		elapse(1)
		requireStandby(t, a)
		b.end()
		a.end()
	})
}

// Attempts come sooner, and have shorter timeouts, as the deadline approaches.
func TestLeaderKeepsTheLeaseIfTheApiserverIsBackWithinTheRenewDeadline(t *testing.T) {
	for name, w := range map[string]fakelock.Interceptor{"refused": fakelock.Fail, "hanging": fakelock.Hang} {
		for back := 2 * time.Second; back <= 9600*time.Millisecond; back += 200 * time.Millisecond {
			t.Run(name+" until "+back.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					_, a, b := twoReplicas(t)
					a.lock.Intercept(w)
					elapse(back)
					a.lock.Intercept(nil)
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
		a.lock.Intercept(fakelock.Fail)
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

// That the lease is another's, or that the work is over, is no failure of a renewal.
func TestWhichRenewalsHaveFailed(t *testing.T) {
	for name, test := range map[string]struct {
		way    fakelock.Interceptor
		holder string // in the lock by then
		over   bool   // the work
		failed float64
	}{
		"succeeds":            {nil, "a", false, 0},
		"fails":               {fakelock.Fail, "a", false, 1},
		"is not answered":     {fakelock.Hang, "a", false, 1},
		"is another's":        {nil, "b", false, 0},
		"the work is over":    {fakelock.Hang, "a", true, 0},
		"and is another's":    {nil, "b", true, 0},
		"fails, and is over":  {fakelock.Fail, "a", true, 0},
		"fails, is another's": {fakelock.Only(fakelock.Update, fakelock.Fail), "b", false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var logged log
				s := fakelock.NewStore()
				lock := newLock(s, "lease", "a")
				r := newReplica(t, lock)
				start, ok := r.tryAcquire(t.Context())
				if !ok {
					t.Fatal("not acquired")
				}
				term := newTerm(t.Context(), start, r.options.RenewDeadline)
				defer term.end(errStepDown)
				if test.holder != "a" {
					setHolder(t, s, test.holder)
				}
				lock.Intercept(test.way)
				working, cancel := context.WithCancelCause(logged.context(t.Context()))
				defer cancel(nil)
				if test.over {
					cancel(errStopping)
				}
				wait := r.renew(working, term)
				if got := testutil.ToFloat64(r.metrics.failures); got != test.failed {
					t.Errorf("%v failures", got)
				}
				if test.failed > 0 {
					logged.require(t, "Could not renew the lease")
				} else {
					logged.require(t)
				}
				if wait > r.options.RetryPeriod || wait <= 0 {
					t.Errorf("the next attempt is after %s", wait)
				}
			})
		})
	}
}

func TestLeaderReadsAtMostFiveTimesASecondWhateverTheWatchHints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newReplica(t, newLock(fakelock.NewStore(), "lease", "a"), func(o *Options) {
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
		if n := a.lock.Requests(); n[fakelock.Get] < 290 || n[fakelock.Get] > 302 || n[fakelock.Update] < 29 || n[fakelock.Update] > 30 {
			t.Errorf("requests of the leader in a minute: %v", n)
		}
		a.end()
	})
}

// The lock has received the late answer, and would overwrite that version.
func TestLeaderDoesNotOverwriteARecordThatWasReadTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakelock.NewStore()
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
		setHolder(t, s, "usurper")
		a.lock.Intercept(fakelock.Only(fakelock.Get, func(_ context.Context, _ fakelock.Operation, send func() error) error {
			time.Sleep(a.options.RequestTimeout + time.Millisecond)
			return send()
		}))
		hint <- struct{}{}
		elapse(3 * time.Second)
		a.lock.Intercept(nil)
		elapse(4 * time.Second)
		if holder := s.Holder("lease"); holder != "usurper" {
			t.Errorf("held by %q", holder)
		}
		requireStandby(t, a)
		a.end()
	})
}

func TestDeletedLeaseIsCreatedAgainByItsLeaderAndRespectedByTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, a, b := twoReplicas(t)
		s.Delete("lease")
		for range 60 {
			elapse(500 * time.Millisecond)
			requireLeader(t, a)
			requireStandby(t, b)
		}
		if s.Holder("lease") != "a" {
			t.Errorf("held by %q", s.Holder("lease"))
		}
		// Without its leader it is free once it would have expired.
		a.lock.Intercept(fakelock.Fail)
		s.Delete("lease")
		elapse(12 * time.Second)
		requireStandby(t, b)
		elapse(5 * time.Second)
		requireLeader(t, b)
		b.end()
		a.end()
	})
}

func TestDeletedLeaseIsCreatedAgainAtOnceAfterAHint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakelock.NewStore()
		a := newReplica(t, newLock(s, "lease", "a"), withWatch(s)).start()
		elapse(777 * time.Millisecond)
		s.Delete("lease")
		synctest.Wait() // no time passes
		if holder := s.Holder("lease"); holder != "a" {
			t.Errorf("held by %q", holder)
		}
		requireLeader(t, a)
		if a.led() != 1 {
			t.Errorf("led %d times", a.led())
		}
		a.end()
	})
}
