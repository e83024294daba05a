package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/eventd/eventd/pkg/election"
)

func TestElectionEndsADrainBeforeTheWorkBegins(t *testing.T) {
	bubble(t, func(t *testing.T, p *process) {
		source := p.leading("source")
		source.Drain = func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(100 * time.Millisecond) // which the work has to wait for
			p.note("drain ends:", context.Cause(ctx).Error())
			return ctx.Err()
		}
		o := options(source)
		o.DrainGracePeriod = time.Hour
		p.run(p.elected(o))
		p.lose(12 * time.Second)
		p.require("source runs", "source is cancelled", "source ends")
		p.recover()
		p.require("drain ends: elected again", "source runs")
		p.stop()
		elapse(time.Minute)
		p.require("source is cancelled", "source ends", "released")
		elapse(time.Hour)
		p.require("drain ends: context deadline exceeded")
		if err := <-p.result; err == nil || err.Error() != `draining component "source": context deadline exceeded` {
			t.Errorf("the end is %v", err)
		}
	})
}

func TestDrainIsBoundedAndNamesWhatHasNotEnded(t *testing.T) {
	bubble(t, func(t *testing.T, p *process) {
		release := make(chan struct{})
		defer close(release)
		p.run(options(p.stubborn(release), p.everywhere("serving")))
		p.next()
		p.stop()
		err := <-p.result
		if !errors.Is(err, election.ErrNotStopped) || err.Error() != `draining component "stubborn": has not stopped in time` {
			t.Errorf("the end is %v", err)
		}
		p.require("stubborn is cancelled", "stubborn ends", "stubborn drains", "serving is cancelled", "serving ends")
	})
}

// A late Drain does not affect elections after its end.
func TestAbandonedDrainIsNoErrorOnceItHasReturned(t *testing.T) {
	bubble(t, func(t *testing.T, p *process) {
		release := make(chan struct{})
		p.run(p.elected(options(p.leading("sink"), p.stubborn(release))))
		p.lose(time.Minute)
		p.next()
		close(release)
		elapse(time.Minute)
		p.require("stubborn has drained")
		p.recover()
		p.require("sink runs", "stubborn runs")
		p.end()
		p.require("stubborn is cancelled", "stubborn ends", "sink is cancelled", "sink ends", "released",
			"stubborn drains", "stubborn has drained", "sink drains")
	})
}

// Neither Run nor another Drain may run beside it.
func TestDrainThatStillRunsIsNotCalledAgain(t *testing.T) {
	each(t, map[string]bool{"elected": true, "stopped": false}, func(t *testing.T, elected bool) {
		p, release := newProcess(t), make(chan struct{})
		defer close(release)
		p.run(p.elected(options(p.leading("sink"), p.stubborn(release))))
		p.lose(time.Minute)
		p.next()
		p.lock.Intercept(p.noteRelease)
		want := []string{"sink drains"} // not released: the lease expires
		if !elected {
			want = []string{"released", "sink drains"}
			p.stop()
		}
		err := <-p.result
		if !errors.Is(err, election.ErrNotStopped) || err.Error() != `draining component "stubborn": has not stopped in time` {
			t.Errorf("the end is %v", err)
		}
		p.require(want...)
	})
}

// A process whose component fails after a lost Lease ends. It drains once, at its end.
func TestWorkThatFailsAtALossIsDrainedOnce(t *testing.T) {
	failure := errors.New("out of paper")
	type test struct {
		after time.Duration // its context
		err   error         // that it returns
		want  []string
		end   error
	}
	each(t, map[string]test{
		"fails":        {0, failure, []string{"sink drains: <nil>", "source drains: <nil>"}, failure},
		"does not end": {time.Hour, nil, []string{"source drains: <nil>"}, election.ErrNotStopped},
		"ends": {0, nil, []string{
			"sink drains: the process stops", "source drains: the process stops", "sink drains: <nil>", "source drains: <nil>",
		}, nil},
	}, func(t *testing.T, test test) {
		p := newProcess(t)
		component := func(name string, run func(context.Context) error) Component {
			return Component{Name: name, NeedsLeadership: true, Run: run, Drain: func(ctx context.Context) error {
				select {
				case <-ctx.Done():
				case <-time.After(time.Millisecond):
				}
				p.note(name, "drains:", fmt.Sprint(context.Cause(ctx)))
				return ctx.Err()
			}}
		}
		o := options(component("source", untilCancelled), component("sink", func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(test.after)
			return test.err
		}))
		o.Elector = &loser{}
		p.run(o)
		elapse(time.Second) // the Lease is lost
		p.stop()
		if err := <-p.result; !errors.Is(err, test.end) {
			t.Errorf("the end is %v", err)
		}
		p.require(test.want...)
		time.Sleep(time.Hour)
	})
}
