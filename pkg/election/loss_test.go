package election

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/eventd/eventd/test/fakelock"
)

// The deadline counts from the beginning of a renewal. Others count from a later time.
func TestLeaderThatCannotRenewStepsDownAtItsDeadline(t *testing.T) {
	for name, w := range map[string]fakelock.Interceptor{"refused": fakelock.Fail, "hanging": fakelock.Hang} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, a, b := twoReplicas(t)
				elapse(2*time.Second + 500*time.Millisecond) // renewed half a second ago
				a.lock.Intercept(w)
				elapse(9500*time.Millisecond - 1)
				requireLeader(t, a)
				working := a.lastTerm()
				if working.Err() != nil {
					t.Fatal("the work is cancelled before the deadline")
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

func TestLeaderThatFindsAnotherHolderStepsDownAtOnce(t *testing.T) {
	for _, holder := range []string{"usurper", ""} {
		synctest.Test(t, func(t *testing.T) {
			s, a, b := twoReplicas(t)
			b.end()
			setHolder(t, s, holder)
			elapse(1999 * time.Millisecond)
			requireLeader(t, a)
			elapse(time.Millisecond)
			if !errors.Is(context.Cause(a.terms[0]), ErrLeaseLost) {
				t.Errorf("the record names %q, and the cause is %v", holder, context.Cause(a.terms[0]))
			}
			if l := a.Leader(); l.Identity != cmp.Or(holder, "a") { // a takes it again
				t.Errorf("the record names %q, and the leader is %+v", holder, l)
			}
			a.end()
		})
	}
}

func TestLeaderStepsDownAtOnceAfterAHint(t *testing.T) {
	for _, holder := range []string{"usurper", ""} {
		synctest.Test(t, func(t *testing.T) {
			s := fakelock.NewStore()
			a := newReplica(t, newLock(s, "lease", "a"), withWatch(s)).start()
			b := newReplica(t, newLock(s, "lease", "b"), withWatch(s))
			elapse(777 * time.Millisecond)
			requireLeader(t, a)
			b.start()
			synctest.Wait()
			a.lock.Intercept(fakelock.Only(fakelock.Update, fakelock.Fail)) // it does not lead again
			setHolder(t, s, holder)
			synctest.Wait() // no time passes
			requireStandby(t, a)
			if cause := context.Cause(a.lastTerm()); !errors.Is(cause, ErrLeaseLost) {
				t.Errorf("the cause is %v", cause)
			}
			if l := a.Leader(); l.Identity != cmp.Or(holder, "b") {
				t.Errorf("the record names %q, and the leader is %+v", holder, l)
			}
			b.end()
			a.end()
		})
	}
}

func TestOneProcessLeadsAndLosesAnyNumberOfTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakelock.NewStore()
		a := newReplica(t, newLock(s, "lease", "a")).start()
		const times = 10
		for n := range times {
			synctest.Wait()
			requireLeader(t, a)
			if a.led() != n+1 {
				t.Fatalf("led %d times, not %d", a.led(), n+1)
			}
			a.lock.Intercept(fakelock.Fail)
			elapse(30 * time.Second)
			requireStandby(t, a)
			a.lock.Intercept(nil)
			elapse(2400 * time.Millisecond)
		}
		a.end()
		want := slices.Repeat([]string{"became leader", "stopped leading"}, times+1)
		if events := a.lock.Events(); !slices.Equal(events, want) {
			t.Errorf("events %v", events)
		}
		if changes := testutil.ToFloat64(a.metrics.transitions.WithLabelValues("lost")); changes != times {
			t.Errorf("%v losses are counted", changes)
		}
	})
}

// client-go's release reads the record, but checks the holder that it remembers.
func TestStalledLeaderDoesNotClearItsSuccessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, a, b := twoReplicas(t)
		letGo := make(chan struct{})
		a.lock.Intercept(fakelock.Block(letGo))
		elapse(20 * time.Second)
		requireLeader(t, b)
		requireStandby(t, a)
		a.stop()
		a.lock.Intercept(nil)
		close(letGo)
		<-a.result
		if holder := s.Holder("lease"); holder != "b" {
			t.Errorf("held by %q", holder)
		}
		requireLeader(t, b)
		b.end()
	})
}

func TestWatchdogFailsForALeaderThatDoesNotStepDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := twoReplicas(t)
		a.finish = time.Minute
		check := a.Watchdog(20 * time.Second)
		elapse(time.Minute)
		a.lock.Intercept(fakelock.Fail)
		elapse(30 * time.Second)
		if err := check(nil); err != nil {
			t.Error(err)
		}
		elapse(1)
		elapse(2 * time.Second)
		if err := check(nil); err == nil {
			t.Error("the check does not fail")
		}
		if b.Watchdog(0)(nil) != nil {
			t.Error("the check of another replica fails")
		}
		elapse(time.Minute)
		if err := check(nil); err != nil {
			t.Errorf("after it has stepped down: %v", err)
		}
		b.end()
		a.end()
	})
}

// The last renewal would be valid for as long as the watchdog tolerates.
func TestWatchdogCountsFromALossBeforeTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewPedanticRegistry()
		s := fakelock.NewStore()
		a := newReplica(t, newLock(s, "lease", "a"), withWatch(s), func(o *Options) { o.Registerer = registry })
		a.finish = time.Minute
		a.start()
		elapse(777 * time.Millisecond)
		requireLeader(t, a)
		setHolder(t, s, "usurper")
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
			t.Error("the check does not fail")
		}
		a.end()
	})
}

func TestWatchdogIsQuietDuringALongPlannedStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newReplica(t, newLock(fakelock.NewStore(), "lease", "a"))
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
