package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eventd/eventd/pkg/election"
	"github.com/eventd/eventd/test/fakelock"
)

func TestElectionEndsADrainBeforeTheWorkBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		source := j.leading("source")
		source.Drain = func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(100 * time.Millisecond) // which the work has to wait for
			j.note("drain ends:", context.Cause(ctx).Error())
			return ctx.Err()
		}
		o, lock := with(t, &j, options(source))
		o.DrainGracePeriod = time.Hour
		m := manage(t, o)

		synctest.Wait()
		lock.Intercept(fakelock.Fail)
		elapse(12 * time.Second)
		j.require(t, "source runs", "source is cancelled", "source ends")
		lock.Intercept(noteRelease(&j, lock))
		elapse(3 * time.Second)
		j.require(t, "drain ends: elected again", "source runs")
		m.stop()
		elapse(time.Minute)
		j.require(t, "source is cancelled", "source ends", "released")
		elapse(time.Hour)
		j.require(t, "drain ends: context deadline exceeded")
		if err := <-m.result; err == nil || err.Error() != `draining component "source": context deadline exceeded` {
			t.Errorf("the end is %v", err)
		}
	})
}

func TestDrainIsBoundedAndNamesWhatHasNotEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		release := make(chan struct{})
		stubborn := j.leading("stubborn")
		stubborn.Drain = func(context.Context) error { <-release; return nil }
		m := manage(t, options(stubborn, j.everywhere("serving")))
		synctest.Wait()
		j.next()
		if err := m.end(); !errors.Is(err, election.ErrNotStopped) || !strings.Contains(err.Error(), `draining component "stubborn"`) {
			t.Errorf("the end is %v", err)
		}
		j.require(t, "stubborn is cancelled", "stubborn ends", "serving is cancelled", "serving ends")
		close(release)
	})
}

// A late Drain does not affect elections after its end.
func TestAbandonedDrainIsNoErrorOnceItHasReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		release := make(chan struct{})
		stubborn := j.leading("stubborn")
		stubborn.Drain = func(context.Context) error {
			<-release
			j.note("stubborn drains")
			return nil
		}
		o, lock := with(t, &j, options(j.leading("sink"), stubborn))
		m := manage(t, o)

		elapse(time.Second)
		lock.Intercept(fakelock.Fail)
		elapse(time.Minute)
		j.next()
		close(release)
		elapse(time.Minute)
		j.require(t, "stubborn drains")
		lock.Intercept(noteRelease(&j, lock))
		elapse(3 * time.Second)
		j.require(t, "sink runs", "stubborn runs")
		if err := m.end(); err != nil {
			t.Error(err)
		}
		j.require(t, "stubborn is cancelled", "stubborn ends", "sink is cancelled", "sink ends", "released", "stubborn drains", "sink drains")
	})
}

// Neither Run nor another Drain may run beside it.
func TestDrainThatStillRunsIsNotCalledAgain(t *testing.T) {
	for _, elected := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			var j journal
			release := make(chan struct{})
			stubborn := j.leading("stubborn")
			stubborn.Drain = func(context.Context) error {
				j.note("stubborn drains")
				<-release
				return nil
			}
			o, lock := with(t, &j, options(j.leading("sink"), stubborn))
			m := manage(t, o)

			elapse(time.Second)
			lock.Intercept(fakelock.Fail)
			elapse(time.Minute)
			j.next()
			lock.Intercept(noteRelease(&j, lock))
			want := []string{"sink drains"} // not released: the lease expires
			if !elected {
				want = []string{"released", "sink drains"}
				m.stop()
			}
			err := <-m.result
			if !errors.Is(err, election.ErrNotStopped) || err.Error() != `draining component "stubborn": has not stopped in time` {
				t.Errorf("elected %t: the end is %v", elected, err)
			}
			j.require(t, want...)
			close(release)
		})
	}
}

// A process whose component fails after a lost Lease ends. It drains once, at its end.
func TestWorkThatFailsAtALossIsDrainedOnce(t *testing.T) {
	failure := errors.New("out of paper")
	for name, test := range map[string]struct {
		run  func(context.Context) error
		want []string
		err  error
	}{
		"fails": {func(ctx context.Context) error {
			<-ctx.Done()
			return failure
		}, []string{"sink drains: <nil>", "source drains: <nil>"}, failure},
		"does not end": {func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(time.Hour)
			return nil
		}, []string{"source drains: <nil>"}, election.ErrNotStopped},
		"ends": {func(ctx context.Context) error {
			<-ctx.Done()
			return nil
		}, []string{"sink drains: the process stops", "source drains: the process stops", "sink drains: <nil>", "source drains: <nil>"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var j journal
				drain := func(name string) func(context.Context) error {
					return func(ctx context.Context) error {
						select {
						case <-ctx.Done():
						case <-time.After(time.Millisecond):
						}
						j.note(name, "drains:", fmt.Sprint(context.Cause(ctx)))
						return ctx.Err()
					}
				}
				source := Component{Name: "source", NeedsLeadership: true, Drain: drain("source"), Run: func(ctx context.Context) error {
					<-ctx.Done()
					return nil
				}}
				sink := Component{Name: "sink", NeedsLeadership: true, Drain: drain("sink"), Run: test.run}
				o := options(source, sink)
				o.Elector = &loser{}
				m := manage(t, o)
				synctest.Wait()
				time.Sleep(time.Second) // the Lease is lost
				synctest.Wait()
				err := m.end()
				if !errors.Is(err, test.err) {
					t.Errorf("the end is %v", err)
				}
				j.require(t, test.want...)
				time.Sleep(time.Hour)
			})
		})
	}
}
