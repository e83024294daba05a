package lifecycle

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eventd/eventd/pkg/election"
	"github.com/eventd/eventd/test/fakelock"
)

func TestLeaderComponentsStartAtEachElectionAndStopAtEachLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		o, lock := with(t, &j, options(j.everywhere("serving"), j.leading("sink"), j.leading("source")))
		m := manage(t, o)

		synctest.Wait()
		j.require(t, "serving runs", "sink runs", "source runs")
		for range 5 {
			lock.Intercept(fakelock.Fail)
			elapse(30 * time.Second)
			got := j.next()
			// All are cancelled together, and drain when all have ended.
			if len(got) != 6 || !slices.Equal(slices.Sorted(slices.Values(got[:2])), []string{"sink is cancelled", "source is cancelled"}) ||
				!slices.Equal(slices.Sorted(slices.Values(got[2:4])), []string{"sink ends", "source ends"}) ||
				!slices.Equal(got[4:], []string{"source drains", "sink drains"}) {
				t.Fatalf("at the loss: %q", got)
			}
			lock.Intercept(noteRelease(&j, lock))
			elapse(3 * time.Second)
			j.require(t, "sink runs", "source runs")
		}
		if err := m.end(); err != nil {
			t.Error(err)
		}
	})
}

// What is cancelled in turn would go on for as long as the one before takes.
func TestLeaseThatIsLostDuringAStopCancelsAllAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		slow := j.leading("slow")
		slow.Ready = nil
		slow.Run = func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(time.Minute)
			return ctx.Err()
		}
		o, lock := with(t, &j, options(j.leading("sink"), slow))
		o.StopGracePeriod = time.Hour
		m := manage(t, o)
		synctest.Wait()
		j.require(t, "sink runs")
		lock.Intercept(fakelock.Fail)
		m.stop()
		elapse(10*time.Second - 1)
		j.require(t)
		elapse(time.Second)
		j.require(t, "sink is cancelled", "sink ends")
		if err := <-m.result; err != nil {
			t.Error(err)
		}
	})
}

func TestLostLeaseStopsTheProcessIfTheElectorEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		lock := fakelock.New(fakelock.NewStore(), "lease", "a")
		o := options(j.everywhere("serving"), j.leading("source"))
		o.Elector = newElector(t, lock, election.Exit)
		m := manage(t, o)
		synctest.Wait()
		lock.Intercept(fakelock.Fail)
		if err := <-m.result; !errors.Is(err, election.ErrLeaseLost) {
			t.Errorf("the end is %v", err)
		}
		got := j.next()
		if want := []string{"serving runs", "source runs", "source is cancelled", "source ends", "source drains"}; !slices.Equal(got[:5], want) {
			t.Errorf("happened: %q", got)
		}
		if want := []string{"serving is cancelled", "serving ends"}; !slices.Equal(got[len(got)-2:], want) {
			t.Errorf("happened at the end: %q", got)
		}
	})
}

func TestLeaseIsFollowedUntilAllHasStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		var elector *election.Elector
		serving := Component{Name: "serving", Run: func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(10 * time.Second) // forwards requests
			j.note("the leader is", elector.Leader().Identity)
			return nil
		}}
		o, lock := with(t, &j, options(serving, j.leading("source")))
		elector = o.Elector.(*election.Elector)
		o.StopGracePeriod = time.Minute
		m := manage(t, o)
		elapse(time.Second)
		b := newElector(t, lock.For("b"), election.StandBy)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go func() { _ = b.Run(ctx, func(ctx context.Context) error { <-ctx.Done(); return nil }) }()
		if err := m.end(); err != nil {
			t.Error(err)
		}
		j.require(t, "source runs", "source is cancelled", "source ends", "released", "source drains", "the leader is b")
	})
}

// loser leads one term that is lost at once, and follows until it is cancelled not to.
type loser struct {
	follows time.Duration // after its context has ended
	ended   bool
}

func (l *loser) Run(ctx context.Context, lead func(context.Context) error) error {
	lost, lose := context.WithCancelCause(ctx)
	time.AfterFunc(time.Second, func() { lose(election.ErrLeaseLost) })
	if err := lead(lost); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

func (l *loser) Follow(ctx context.Context) error {
	<-ctx.Done()
	time.Sleep(l.follows)
	l.ended = true
	return nil
}

func TestManagerWaitsForTheEndOfFollowing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		l := &loser{follows: time.Second}
		o := options(j.leading("source"))
		o.Elector = l
		m := manage(t, o)
		elapse(3 * time.Second)
		if err := m.end(); err != nil {
			t.Error(err)
		}
		if !l.ended {
			t.Error("the Lease is still followed after Run has returned")
		}
	})
}
