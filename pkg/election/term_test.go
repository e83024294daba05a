package election

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eventd/eventd/test/fakelock"
)

// No goroutine and no timer of the elector runs, as in a process that was stopped.
func TestStalledLeaderComparesTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, err := New(options(newLock(fakelock.NewStore(), "lease", "a")))
		if err != nil {
			t.Fatal(err)
		}
		stalled := newTerm(t.Context(), now(), e.options.RenewDeadline)
		stalled.timer.Stop()
		e.term.Store(stalled)
		working := termContext{stalled.context, stalled}

		time.Sleep(10*time.Second - 1)
		if !e.Leading() || working.Err() != nil {
			t.Fatal("over before the deadline")
		}
		time.Sleep(1 * time.Nanosecond)
		if stalled.context.Err() != nil {
			t.Fatal("somebody was awake")
		}
		if working.Err() == nil {
			t.Error("the context's error does not compare the clock")
		}
		if e.Leading() || !errors.Is(context.Cause(working), ErrLeaseLost) {
			t.Errorf("leads, cause %v", context.Cause(working))
		}
		if stalled.extend(now()) || e.Leading() {
			t.Error("a renewal that comes too late revives the term")
		}
	})
}

// The two clocks are read one after the other, so the timer may fire early.
func TestTimerThatIsEarlyIsSetAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		working := newTerm(t.Context(), now(), 10*time.Second)
		working.timer.Reset(10*time.Second - time.Microsecond)
		elapse(10 * time.Second)
		select {
		case <-working.ended:
		default:
			t.Error("the term has not ended")
		}
	})
}

func TestDoneOfAStalledLeadersContextComparesTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stalled := newTerm(t.Context(), now(), time.Second)
		stalled.timer.Stop()
		time.Sleep(time.Second)
		select {
		case <-(termContext{stalled.context, stalled}).Done():
		default:
			t.Error("not done")
		}
	})
}

// While a machine is suspended, the time since boot continues, the monotonic clock
// does not.
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
