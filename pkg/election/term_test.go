package election

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eventd/eventd/test/fakelock"
)

// No goroutine and no timer of the elector runs, as in a process that was stopped.
func TestStalledLeaderComparesTheClock(t *testing.T) {
	each(t, map[string]func(e *Elector, c termContext) (over bool){
		"Leading": func(e *Elector, _ termContext) bool { return !e.Leading() },
		"Err":     func(_ *Elector, c termContext) bool { return c.Err() != nil },
		"Done": func(_ *Elector, c termContext) bool {
			select {
			case <-c.Done():
				return true
			default:
				return false
			}
		},
		"IsLost": func(_ *Elector, c termContext) bool { return IsLost(context.WithoutCancel(c)) },
	}, func(t *testing.T, over func(*Elector, termContext) bool) {
		e, err := New(options(newLock(fakelock.NewStore(), "lease", "a")))
		if err != nil {
			t.Fatal(err)
		}
		stalled := newTerm(t.Context(), now(), e.options.RenewDeadline)
		stalled.timer.Stop()
		e.term.Store(stalled)
		working := termContext{stalled.context, stalled}

		time.Sleep(10*time.Second - 1)
		if over(e, working) {
			t.Fatal("over before the deadline")
		}
		time.Sleep(1 * time.Nanosecond)
		if stalled.context.Err() != nil {
			t.Fatal("somebody was awake")
		}
		if !over(e, working) || !errors.Is(context.Cause(working), ErrLeaseLost) {
			t.Errorf("not over, or not as a loss: %v", context.Cause(working))
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

// While a machine is suspended, the time since boot continues, the monotonic clock
// does not.
func TestTimeSinceBootCountsWhereItIsLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c clock
		before := now()
		before.boot -= time.Minute
		if runtime.GOOS == "linux" && (sinceBoot() == 0 || c.since(before) < time.Minute) {
			t.Errorf("a suspended minute is %s", c.since(before))
		}
		before = now()
		time.Sleep(time.Hour) // in a bubble no time since boot
		if c.since(before) != time.Hour {
			t.Errorf("an hour is %s", c.since(before))
		}
	})
}
