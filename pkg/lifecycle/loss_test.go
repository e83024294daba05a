package lifecycle

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/eventd/eventd/pkg/election"
	"github.com/eventd/eventd/test/fakelock"
)

func TestLeaderComponentsStartAtEachElectionAndStopAtEachLoss(t *testing.T) {
	bubble(t, func(t *testing.T, p *process) {
		p.run(p.elected(options(p.everywhere("serving"), p.leading("sink"), p.leading("source"))))
		p.require("serving runs", "sink runs", "source runs")
		for range 5 {
			p.lose(30 * time.Second)
			got := p.next()
			// All are cancelled together, and drain when all have ended.
			if len(got) == 6 {
				slices.Sort(got[:2])
				slices.Sort(got[2:4])
			}
			if want := []string{
				"sink is cancelled", "source is cancelled", "sink ends", "source ends", "source drains", "sink drains",
			}; !slices.Equal(got, want) {
				t.Fatalf("at the loss: %q, want %q", got, want)
			}
			p.recover()
			p.require("sink runs", "source runs")
		}
		p.end()
	})
}

// What is cancelled in turn would go on for as long as the one before takes.
func TestLeaseThatIsLostDuringAStopCancelsAllAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, p *process) {
		slow := Component{Name: "slow", NeedsLeadership: true, Run: func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(time.Minute)
			return ctx.Err()
		}}
		o := options(p.leading("sink"), slow)
		o.StopGracePeriod = time.Hour
		p.run(p.elected(o))
		p.require("sink runs")
		p.stop()
		p.lose(10*time.Second - 1)
		p.require()
		elapse(time.Second)
		p.require("sink is cancelled", "sink ends")
		elapse(time.Minute)
		p.require("sink drains")
		p.end()
	})
}

func TestLostLeaseStopsTheProcessIfTheElectorEnds(t *testing.T) {
	bubble(t, func(t *testing.T, p *process) {
		o := options(p.everywhere("serving"), p.leading("source"))
		o.Elector = newElector(t, p.lock, election.Exit)
		p.run(o)
		p.lock.Intercept(fakelock.Fail)
		if err := <-p.result; !errors.Is(err, election.ErrLeaseLost) {
			t.Errorf("the end is %v", err)
		}
		// It drains after the loss, and again at the stop.
		p.require("serving runs", "source runs", "source is cancelled", "source ends", "source drains", "source drains",
			"serving is cancelled", "serving ends")
	})
}

func TestLeaseIsFollowedUntilAllHasStopped(t *testing.T) {
	bubble(t, func(t *testing.T, p *process) {
		elector := newElector(t, p.lock, election.StandBy)
		serving := Component{Name: "serving", Run: func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(10 * time.Second) // forwards requests
			p.note("the leader is", elector.Leader().Identity)
			return nil
		}}
		o := options(serving, p.leading("source"))
		o.Elector, o.StopGracePeriod = elector, time.Minute
		p.run(o)
		b := newElector(t, p.lock.For("b"), election.StandBy)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go func() { _ = b.Run(ctx, untilCancelled) }()
		p.end()
		p.require("source runs", "source is cancelled", "source ends", "released", "source drains", "the leader is b")
	})
}

// loser leads one term that is lost after a second, and follows for some time after
// its context has ended.
type loser struct {
	follows time.Duration
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
	bubble(t, func(t *testing.T, p *process) {
		l := &loser{follows: time.Second}
		o := options(p.leading("source"))
		o.Elector = l
		p.run(o)
		elapse(3 * time.Second)
		p.end()
		if !l.ended {
			t.Error("the Lease is still followed after Run has returned")
		}
	})
}
