package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eventd/eventd/pkg/election"
	"github.com/eventd/eventd/test/fakelock"
)

func TestComponentsStartInOrderAndStopInReverseAndTheLeaseIsReleasedBetween(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		// The order of the two kinds among each other does not matter.
		o, _ := with(t, &j, options(
			j.ready(j.leading("sink"), time.Second), j.ready(j.everywhere("metrics"), time.Second), j.leading("source"), j.everywhere("serving"),
		))
		m := manage(t, o)
		elapse(3 * time.Second)
		j.require(t, "metrics runs", "metrics is ready", "serving runs", "sink runs", "sink is ready", "source runs")
		if err := m.end(); err != nil {
			t.Error(err)
		}
		j.require(t,
			"source is cancelled", "source ends", "sink is cancelled", "sink ends", "released", "source drains", "sink drains",
			"serving is cancelled", "serving ends", "metrics is cancelled", "metrics ends")
	})
}

func TestProcessThatRunsAloneLeadsFromStartToStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		m := manage(t, options(j.everywhere("serving"), j.leading("source")))
		synctest.Wait()
		j.require(t, "serving runs", "source runs")
		if err := m.end(); err != nil {
			t.Error(err)
		}
		j.require(t, "source is cancelled", "source ends", "source drains", "serving is cancelled", "serving ends")
	})
}

func TestErrorOfOneComponentStopsAllInOrder(t *testing.T) {
	failure := errors.New("out of paper")
	for _, leader := range []bool{false, true} {
		t.Run(fmt.Sprint("needs leadership ", leader), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var j journal
				broken := Component{Name: "printer", NeedsLeadership: leader, Run: func(context.Context) error {
					time.Sleep(time.Second)
					return failure
				}}
				o, _ := with(t, &j, options(j.everywhere("serving"), broken, j.leading("source")))
				m := manage(t, o)
				synctest.Wait()
				j.require(t, "serving runs", "source runs")
				if err := <-m.result; !errors.Is(err, failure) || err.Error() != `component "printer": out of paper` {
					t.Errorf("the end is %v", err)
				}
				j.require(t, "source is cancelled", "source ends", "released", "source drains", "serving is cancelled", "serving ends")
			})
		})
	}
}

func TestErrorsOfAllComponentsAreReturned(t *testing.T) {
	first, last := errors.New("out of paper"), errors.New("out of ink")
	synctest.Test(t, func(t *testing.T) {
		m := manage(t, options(
			Component{Name: "plotter", Run: func(ctx context.Context) error { <-ctx.Done(); return last }},
			Component{Name: "printer", Run: func(context.Context) error { time.Sleep(time.Second); return first }}))
		if err := <-m.result; !errors.Is(err, first) || !errors.Is(err, last) || strings.Count(err.Error(), first.Error()) != 1 {
			t.Errorf("the end is %v", err)
		}
	})
}

func TestComponentThatEndsItsGoroutineStopsTheProcess(t *testing.T) {
	for _, needsLeadership := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			options := DefaultOptions()
			options.Components = []Component{{Name: "gone", NeedsLeadership: needsLeadership, Run: func(context.Context) error {
				runtime.Goexit()
				return nil
			}}}
			m, err := New(options)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			if err := m.Run(ctx); !errors.Is(err, errGoroutineEnded) {
				t.Errorf("needs leadership %t: %v", needsLeadership, err)
			}
		})
	}
}

func TestComponentThatIsNotReadyStopsTheStart(t *testing.T) {
	failure := errors.New("no port")
	for name, test := range map[string]struct {
		broken Component
		want   string
	}{
		"Ready fails": {Component{Run: func(ctx context.Context) error { <-ctx.Done(); return nil }, Ready: func(context.Context) error { return failure }},
			`component "broken" is not ready: no port`},
		"fails": {Component{Run: func(context.Context) error { return failure }, Ready: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }},
			`component "broken": no port`},
		"ends": {Component{Run: func(context.Context) error { return nil }, Ready: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }},
			`component "broken" has ended before it was ready`},
	} {
		for _, leader := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var j journal
					test.broken.Name, test.broken.NeedsLeadership = "broken", leader
					m := manage(t, options(j.everywhere("first"), test.broken, j.everywhere("second"), j.leading("not led")))
					if err := <-m.result; err == nil || err.Error() != test.want {
						t.Errorf("the end is %v", err)
					}
					want := []string{"first runs", "first is cancelled", "first ends"}
					if leader { // those that run everywhere have been started before
						want = []string{"first runs", "second runs", "second is cancelled", "second ends", "first is cancelled", "first ends"}
					}
					j.require(t, want...)
				})
			})
		}
	}
}

func TestStopIsBoundedAndNamesWhatHasNotEnded(t *testing.T) {
	for _, leader := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var j journal
			release := make(chan struct{})
			stubborn := Component{Name: "stubborn", NeedsLeadership: leader, Run: func(context.Context) error { <-release; return nil }}
			if leader {
				stubborn.Drain = func(context.Context) error { j.note("stubborn drains while it runs"); return nil }
			}
			first := j.leading("first")
			o, lock := with(t, &j, options(first, stubborn, j.everywhere("serving")))
			m := manage(t, o)
			synctest.Wait()
			j.next()
			began := time.Now()
			err := m.end()
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
			j.require(t, want...)
			if held := lock.Holder() == "a"; held != leader {
				t.Errorf("the lease is held: %t, while leader work runs: %t", held, leader)
			}
			close(release)
		})
	}
}

func TestLeaderComponentsDoNotStartDuringAStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		o, lock := with(t, &j, options(j.everywhere("serving"), j.leading("source")))
		acquiring, arrive := make(chan struct{}), make(chan struct{})
		lock.Intercept(fakelock.Only(fakelock.Create, func(_ context.Context, _ fakelock.Operation, send func() error) error {
			close(acquiring)
			<-arrive
			return send()
		}))
		m := manage(t, o)
		<-acquiring
		m.stop()
		close(arrive)
		if err := <-m.result; err != nil {
			t.Error(err)
		}
		j.require(t, "serving runs", "serving is cancelled", "serving ends")
	})
}

// The stop comes before the first leader component is ready.
func TestStopDuringTheStartOfLeaderComponentsStartsNoMoreOfThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		o, _ := with(t, &j, options(j.ready(j.leading("sink"), time.Hour), j.leading("source")))
		m := manage(t, o)
		elapse(time.Minute)
		if err := m.end(); err != nil {
			t.Error(err)
		}
		j.require(t, "sink runs", "sink is cancelled", "sink ends", "released", "sink drains")
	})
}

func TestErrorsOfOptionsNameTheField(t *testing.T) {
	var j journal
	for want, spoil := range map[string]func(*Options){
		"Components[0].Name must not be empty":                                    func(o *Options) { o.Components[0].Name = "" },
		`Components[1].Name must be unique, got "source" again`:                   func(o *Options) { o.Components[0].Name = "source" },
		`Components[0].Run of "serving" must be set`:                              func(o *Options) { o.Components[0].Run = nil },
		`Components[1].Drain of "source" must not be set without NeedsLeadership`: func(o *Options) { o.Components[1].NeedsLeadership = false },
		"StopGracePeriod must be greater than 0, got 0s":                          func(o *Options) { o.StopGracePeriod = 0 },
		"DrainGracePeriod must be greater than 0, got -1ns":                       func(o *Options) { o.DrainGracePeriod = -1 },
	} {
		o := options(j.everywhere("serving"), j.leading("source"))
		spoil(&o)
		if _, err := New(o); err == nil || err.Error() != "lifecycle options: "+want {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}
