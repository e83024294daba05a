package lifecycle

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/eventd/eventd/pkg/election"
)

func TestComponentsStartInOrderAndStopInReverseAndTheLeaseIsReleasedBetween(t *testing.T) {
	bubble(t, func(t *testing.T, p *process) {
		// The order of the two kinds among each other does not matter.
		p.run(p.elected(options(
			p.ready(p.leading("sink"), time.Second), p.ready(p.everywhere("metrics"), time.Second), p.leading("source"), p.everywhere("serving"),
		)))
		elapse(3 * time.Second)
		p.require("metrics runs", "metrics is ready", "serving runs", "sink runs", "sink is ready", "source runs")
		p.end()
		p.require(
			"source is cancelled", "source ends", "sink is cancelled", "sink ends", "released", "source drains", "sink drains",
			"serving is cancelled", "serving ends", "metrics is cancelled", "metrics ends")
	})
}

func TestProcessThatRunsAloneLeadsFromStartToStop(t *testing.T) {
	bubble(t, func(t *testing.T, p *process) {
		p.run(options(p.everywhere("serving"), p.leading("source")))
		p.require("serving runs", "source runs")
		p.end()
		p.require("source is cancelled", "source ends", "source drains", "serving is cancelled", "serving ends")
	})
}

func TestErrorOfOneComponentStopsAllInOrder(t *testing.T) {
	failure := errors.New("out of paper")
	each(t, byLeadership, func(t *testing.T, leader bool) {
		p := newProcess(t)
		broken := Component{Name: "printer", NeedsLeadership: leader, Run: func(context.Context) error {
			time.Sleep(time.Second)
			return failure
		}}
		p.run(p.elected(options(p.everywhere("serving"), broken, p.leading("source"))))
		p.require("serving runs", "source runs")
		if err := <-p.result; !errors.Is(err, failure) || err.Error() != `component "printer": out of paper` {
			t.Errorf("the end is %v", err)
		}
		p.require("source is cancelled", "source ends", "released", "source drains", "serving is cancelled", "serving ends")
	})
}

func TestErrorsOfAllComponentsAreReturned(t *testing.T) {
	first, last := errors.New("out of paper"), errors.New("out of ink")
	bubble(t, func(t *testing.T, p *process) {
		p.run(options(
			Component{Name: "plotter", Run: func(ctx context.Context) error { <-ctx.Done(); return last }},
			Component{Name: "printer", Run: func(context.Context) error { time.Sleep(time.Second); return first }}))
		if err := <-p.result; !errors.Is(err, first) || !errors.Is(err, last) || strings.Count(err.Error(), first.Error()) != 1 {
			t.Errorf("the end is %v", err)
		}
	})
}

func TestComponentThatEndsItsGoroutineStopsTheProcess(t *testing.T) {
	each(t, byLeadership, func(t *testing.T, leader bool) {
		p := newProcess(t)
		p.run(options(Component{Name: "gone", NeedsLeadership: leader, Run: func(context.Context) error {
			runtime.Goexit()
			return nil
		}}))
		time.AfterFunc(time.Hour, p.stop)
		if err := <-p.result; !errors.Is(err, errGoroutineEnded) {
			t.Errorf("the end is %v", err)
		}
	})
}

func TestComponentThatIsNotReadyStopsTheStart(t *testing.T) {
	failure := errors.New("no port")
	returns := func(err error) func(context.Context) error {
		return func(context.Context) error { return err }
	}
	type test struct {
		broken Component
		want   string
	}
	for _, leader := range []bool{false, true} {
		each(t, map[string]test{
			"Ready fails": {Component{Run: untilCancelled, Ready: returns(failure)}, `component "broken" is not ready: no port`},
			"fails":       {Component{Run: returns(failure), Ready: untilCancelled}, `component "broken": no port`},
			"ends":        {Component{Run: returns(nil), Ready: untilCancelled}, `component "broken" has ended before it was ready`},
		}, func(t *testing.T, test test) {
			p := newProcess(t)
			test.broken.Name, test.broken.NeedsLeadership = "broken", leader
			p.run(options(p.everywhere("first"), test.broken, p.everywhere("second"), p.leading("not led")))
			if err := <-p.result; err == nil || err.Error() != test.want {
				t.Errorf("the end is %v", err)
			}
			want := []string{"first runs", "first is cancelled", "first ends"}
			if leader { // those that run everywhere have been started before
				want = []string{"first runs", "second runs", "second is cancelled", "second ends", "first is cancelled", "first ends"}
			}
			p.require(want...)
		})
	}
}

func TestStopIsBoundedAndNamesWhatHasNotEnded(t *testing.T) {
	each(t, byLeadership, func(t *testing.T, leader bool) {
		p, release := newProcess(t), make(chan struct{})
		defer close(release)
		stubborn := Component{Name: "stubborn", NeedsLeadership: leader, Run: func(context.Context) error { <-release; return nil }}
		if leader {
			stubborn.Drain = func(context.Context) error { p.note("stubborn drains while it runs"); return nil }
		}
		o := options(p.leading("first"), stubborn, p.everywhere("serving"))
		p.run(p.elected(o))
		p.next()
		began := time.Now()
		p.stop()
		err := <-p.result
		if !errors.Is(err, election.ErrNotStopped) || err.Error() != `component "stubborn" has not stopped in time` {
			t.Errorf("the end is %v", err)
		}
		if took := time.Since(began); took > o.StopGracePeriod+lateStopTimeout+time.Second {
			t.Errorf("it took %s", took)
		}
		want := []string{"first is cancelled", "first ends", "released", "first drains", "serving is cancelled", "serving ends"}
		if leader {
			want = slices.DeleteFunc(want, func(entry string) bool { return entry == "released" })
		}
		p.require(want...)
		if held := p.lock.Holder() == "a"; held != leader {
			t.Errorf("the lease is held: %t, while leader work runs: %t", held, leader)
		}
	})
}

// The stop comes before the first leader component is ready.
func TestStopDuringTheStartOfLeaderComponentsStartsNoMoreOfThem(t *testing.T) {
	bubble(t, func(t *testing.T, p *process) {
		p.run(p.elected(options(p.ready(p.leading("sink"), time.Hour), p.leading("source"))))
		elapse(time.Minute)
		p.end()
		p.require("sink runs", "sink is cancelled", "sink ends", "released", "sink drains")
	})
}

func TestErrorsOfOptionsNameTheField(t *testing.T) {
	p := newProcess(t)
	for want, spoil := range map[string]func(*Options){
		"Components[0].Name must not be empty":                                    func(o *Options) { o.Components[0].Name = "" },
		`Components[1].Name must be unique, got "source" again`:                   func(o *Options) { o.Components[0].Name = "source" },
		`Components[0].Run of "serving" must be set`:                              func(o *Options) { o.Components[0].Run = nil },
		`Components[1].Drain of "source" must not be set without NeedsLeadership`: func(o *Options) { o.Components[1].NeedsLeadership = false },
		"StopGracePeriod must be greater than 0, got 0s":                          func(o *Options) { o.StopGracePeriod = 0 },
		"DrainGracePeriod must be greater than 0, got -1ns":                       func(o *Options) { o.DrainGracePeriod = -1 },
	} {
		o := options(p.everywhere("serving"), p.leading("source"))
		spoil(&o)
		if _, err := New(o); err == nil || err.Error() != "lifecycle options: "+want {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}
