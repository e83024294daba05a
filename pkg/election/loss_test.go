package election

import (
	"cmp"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/eventd/eventd/test/fakelock"
	testmetrics "github.com/eventd/eventd/test/metrics"
)

// outages are ways in which an apiserver does not answer.
var outages = map[string]fakelock.Interceptor{"refused": fakelock.Fail, "hanging": fakelock.Hang}

// The deadline counts from the beginning of a renewal. Others count from a later time.
func TestLeaderThatCannotRenewStepsDownAtItsDeadline(t *testing.T) {
	each(t, outages, func(t *testing.T, fails fakelock.Interceptor) {
		_, a, b := twoReplicas(t)
		elapse(2*time.Second + 500*time.Millisecond) // renewed half a second ago
		a.lock.Intercept(fails)
		elapse(9500*time.Millisecond - 1)
		requireLeader(t, a)
		if a.lastTerm().Err() != nil {
			t.Fatal("the work is cancelled before the deadline")
		}
		elapse(1)
		requireStandby(t, a)
		requireLost(t, a.lastTerm())
		elapse(5*time.Second - 1)
		requireStandby(t, b)
		elapse(2400*time.Millisecond + 1) // b reads as often
		requireLeader(t, b)
		a.end()
		requireLeader(t, b)
	})
}

// By a renewal, or at once after a hint.
func TestLeaderThatFindsAnotherHolderStepsDownAtOnce(t *testing.T) {
	type test struct {
		holder string
		change []func(*Options)
		after  time.Duration
	}
	each(t, map[string]test{
		"another":              {"usurper", nil, 1223 * time.Millisecond},
		"none":                 {"", nil, 1223 * time.Millisecond},
		"another, with a hint": {"usurper", []func(*Options){watching}, 0},
		"none, with a hint":    {"", []func(*Options){watching}, 0},
	}, func(t *testing.T, test test) {
		s, a, b := twoReplicas(t, test.change...)
		b.lock.Intercept(fakelock.Only(fakelock.Get, fakelock.Fail))
		elapse(777 * time.Millisecond)
		term := a.lastTerm()
		forceHolder(s, test.holder)
		if test.after > 0 {
			elapse(test.after - 1)
			requireLeader(t, a)
			elapse(1)
		}
		synctest.Wait() // no time passes
		requireLost(t, term)
		a.logged.require(t, "Lost the lease", map[string]string{"": "no holder", "usurper": "held by"}[test.holder])
		if l := a.Leader(); l.Identity != cmp.Or(test.holder, "a") { // a takes it again
			t.Errorf("the leader is %+v", l)
		}
	})
}

func TestOneProcessLeadsAndLosesAnyNumberOfTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a := oneReplica(t)
		const times = 10
		for n := range times {
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
		a.end()
		requireHolder(t, s, "b")
		requireLeader(t, b)
	})
}

// requireWatchdog requires that the health check of a replica fails, or does not.
func requireWatchdog(t *testing.T, r *replica, tolerance time.Duration, fails bool) {
	t.Helper()
	if err := r.Watchdog(tolerance)(nil); (err != nil) != fails {
		t.Errorf("the check of %s returns %v", r.Identity(), err)
	}
}

func TestWatchdogFailsForALeaderThatDoesNotStepDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := twoReplicas(t)
		a.finish = time.Minute
		elapse(time.Minute)
		a.lock.Intercept(fakelock.Fail)
		elapse(30 * time.Second)
		requireWatchdog(t, a, 20*time.Second, false)
		elapse(2*time.Second + 1)
		requireWatchdog(t, a, 20*time.Second, true)
		requireWatchdog(t, b, 0, false)
		elapse(time.Minute) // it has stepped down
		requireWatchdog(t, a, 20*time.Second, false)
	})
}

// The last renewal would be valid for as long as the watchdog tolerates.
func TestWatchdogCountsFromALossBeforeTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewPedanticRegistry()
		s, a := oneReplica(t, watching, func(o *Options) { o.Registerer = registry })
		a.finish = time.Minute
		elapse(777 * time.Millisecond)
		forceHolder(s, "usurper")
		synctest.Wait() // no time passes
		requireStandby(t, a)
		elapse(10 * time.Second)
		requireWatchdog(t, a, 10*time.Second, false)
		if left := testmetrics.Gather(t, registry).Sum("eventd_election_deadline_seconds"); left != -10 {
			t.Errorf("%v s are left of the deadline, want -10", left)
		}
		elapse(1)
		requireWatchdog(t, a, 10*time.Second, true)
	})
}

func TestWatchdogIsQuietDuringALongPlannedStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a := oneReplica(t)
		a.finish = 5 * time.Minute
		a.stop()
		elapse(4 * time.Minute)
		requireWatchdog(t, a, 0, false)
	})
}
