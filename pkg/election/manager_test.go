package election

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// journal is what happened, in order.
type journal struct {
	mu      sync.Mutex
	entries []string
}

func (j *journal) note(entry ...string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entries = append(j.entries, strings.Join(entry, " "))
}

// take returns the entries since it was last called.
func (j *journal) take() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	taken := j.entries
	j.entries = nil
	return taken
}

func (j *journal) require(t *testing.T, want ...string) {
	t.Helper()
	if got := j.take(); !slices.Equal(got, want) {
		t.Errorf("happened: %q\nwant: %q", got, want)
	}
}

// everywhere returns a component that works until it is told.
func (j *journal) everywhere(name string) Component {
	begun := make(chan struct{}, 1)
	return Component{
		Name: name,
		Run: func(ctx context.Context) error {
			j.note(name, "runs")
			begun <- struct{}{}
			<-ctx.Done()
			j.note(name, "is told")
			time.Sleep(time.Millisecond)
			j.note(name, "ends")
			return ctx.Err()
		},
		Ready: func(ctx context.Context) error {
			select {
			case <-begun:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		},
	}
}

// leading returns one that needs leadership, and drains.
func (j *journal) leading(name string) Component {
	c := j.everywhere(name)
	c.NeedsLeadership = true
	c.Drain = func(context.Context) error {
		j.note(name, "drains")
		return nil
	}
	return c
}

// ready makes a component ready after a while.
func (j *journal) ready(c Component, after time.Duration) Component {
	begun := c.Ready
	c.Ready = func(ctx context.Context) error {
		if err := begun(ctx); err != nil {
			return err
		}
		select {
		case <-time.After(after):
			j.note(c.Name, "is ready")
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return c
}

// managed is a Manager that runs.
type managed struct {
	t      *testing.T
	stop   context.CancelFunc
	result chan error
}

func manage(t *testing.T, o ManagerOptions) *managed {
	t.Helper()
	m, err := NewManager(o)
	if err != nil {
		t.Fatal(err)
	}
	r := &managed{t: t, result: make(chan error, 1)}
	var ctx context.Context
	ctx, r.stop = context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.result <- m.Run(ctx)
	}()
	t.Cleanup(func() {
		r.stop()
		<-done
	})
	return r
}

func (r *managed) end() error {
	r.stop()
	return <-r.result
}

func managerOptions(components ...Component) ManagerOptions {
	o := DefaultManagerOptions()
	o.Components = components
	return o
}

// with adds an elector whose lock tells of the release.
func with(t *testing.T, j *journal, o ManagerOptions) (ManagerOptions, *memoryLock) {
	lock := newLock(newStore(), "lease", "a")
	lock.obstruct(func(_ context.Context, op operation, ask func() error) error {
		err := ask()
		if op == opUpdate && err == nil && lock.store.holder("lease") == "" {
			j.note("released")
		}
		return err
	})
	e, err := New(options(lock))
	if err != nil {
		t.Fatal(err)
	}
	o.Elector = e
	return o, lock
}

func TestComponentsStartInOrderAndStopInReverseAndTheLeaseIsReleasedBetween(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		// The order of the two kinds among each other does not matter.
		o, _ := with(t, &j, managerOptions(
			j.ready(j.leading("sink"), time.Second), j.ready(j.everywhere("metrics"), time.Second), j.leading("source"), j.everywhere("serving"),
		))
		m := manage(t, o)
		elapse(3 * time.Second)
		j.require(t, "metrics runs", "metrics is ready", "serving runs", "sink runs", "sink is ready", "source runs")
		if err := m.end(); err != nil {
			t.Error(err)
		}
		j.require(t,
			"source is told", "source ends", "sink is told", "sink ends", "released", "source drains", "sink drains",
			"serving is told", "serving ends", "metrics is told", "metrics ends")
	})
}

func TestProcessThatRunsAloneLeadsFromStartToStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		m := manage(t, managerOptions(j.everywhere("serving"), j.leading("source")))
		synctest.Wait()
		j.require(t, "serving runs", "source runs")
		if err := m.end(); err != nil {
			t.Error(err)
		}
		j.require(t, "source is told", "source ends", "source drains", "serving is told", "serving ends")
	})
}

func TestLeaderComponentsStartAtEachElectionAndStopAtEachLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		o, lock := with(t, &j, managerOptions(j.everywhere("serving"), j.leading("sink"), j.leading("source")))
		m := manage(t, o)
		way := lock.way
		synctest.Wait()
		j.require(t, "serving runs", "sink runs", "source runs")
		for range 5 {
			lock.obstruct(refused)
			elapse(30 * time.Second)
			got := j.take()
			// All are told at once, and drain when all have ended.
			if len(got) != 6 || !slices.Equal(slices.Sorted(slices.Values(got[:2])), []string{"sink is told", "source is told"}) ||
				!slices.Equal(slices.Sorted(slices.Values(got[2:4])), []string{"sink ends", "source ends"}) ||
				!slices.Equal(got[4:], []string{"source drains", "sink drains"}) {
				t.Fatalf("at the loss: %q", got)
			}
			lock.obstruct(way)
			elapse(3 * time.Second)
			j.require(t, "sink runs", "source runs")
		}
		if err := m.end(); err != nil {
			t.Error(err)
		}
	})
}

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
		o, lock := with(t, &j, managerOptions(source))
		o.DrainGracePeriod = time.Hour
		m := manage(t, o)
		way := lock.way
		synctest.Wait()
		lock.obstruct(refused)
		elapse(12 * time.Second)
		j.require(t, "source runs", "source is told", "source ends")
		lock.obstruct(way)
		elapse(3 * time.Second)
		j.require(t, "drain ends: elected again", "source runs")
		m.stop()
		elapse(time.Minute)
		j.require(t, "source is told", "source ends", "released")
		elapse(time.Hour)
		j.require(t, "drain ends: context deadline exceeded")
		if err := <-m.result; err == nil || err.Error() != `draining component "source": context deadline exceeded` {
			t.Errorf("the end is %v", err)
		}
	})
}

// What is told in turn would go on for as long as the one before takes.
func TestLeaseThatIsLostDuringAStopIsToldToAllAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		slow := j.leading("slow")
		slow.Ready = nil
		slow.Run = func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(time.Minute)
			return ctx.Err()
		}
		o, lock := with(t, &j, managerOptions(j.leading("sink"), slow))
		o.StopGracePeriod = time.Hour
		m := manage(t, o)
		synctest.Wait()
		j.require(t, "sink runs")
		lock.obstruct(refused)
		m.stop()
		elapse(10*time.Second - 1)
		j.require(t)
		elapse(time.Second)
		j.require(t, "sink is told", "sink ends")
		if err := <-m.result; err != nil {
			t.Error(err)
		}
	})
}

func TestLeaseIsFollowedUntilAllHasStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		var elector *Elector
		serving := Component{Name: "serving", Run: func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(10 * time.Second) // passes on
			j.note("the leader is", elector.Leader().Identity)
			return nil
		}}
		o, lock := with(t, &j, managerOptions(serving, j.leading("source")))
		elector = o.Elector.(*Elector)
		o.StopGracePeriod = time.Minute
		m := manage(t, o)
		elapse(time.Second)
		b := newReplica(t, newLock(lock.store, "lease", "b")).start()
		if err := m.end(); err != nil {
			t.Error(err)
		}
		j.require(t, "source runs", "source is told", "source ends", "released", "source drains", "the leader is b")
		b.end()
	})
}

func TestErrorOfOneComponentStopsAllInOrder(t *testing.T) {
	failure := errors.New("out of paper")
	for name, test := range map[string]struct {
		leader bool
		want   []string
	}{
		"everywhere": {false, []string{"source is told", "source ends", "released", "source drains", "serving is told", "serving ends"}},
		"leader":     {true, []string{"source is told", "source ends", "released", "source drains", "serving is told", "serving ends"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var j journal
				broken := Component{Name: "printer", NeedsLeadership: test.leader, Run: func(context.Context) error {
					time.Sleep(time.Second)
					return failure
				}}
				o, _ := with(t, &j, managerOptions(j.everywhere("serving"), broken, j.leading("source")))
				m := manage(t, o)
				synctest.Wait()
				j.require(t, "serving runs", "source runs")
				if err := <-m.result; !errors.Is(err, failure) || err.Error() != `component "printer": out of paper` {
					t.Errorf("the end is %v", err)
				}
				j.require(t, test.want...)
			})
		})
	}
}

func TestErrorsOfAllComponentsAreReturned(t *testing.T) {
	first, last := errors.New("out of paper"), errors.New("out of ink")
	synctest.Test(t, func(t *testing.T) {
		m := manage(t, managerOptions(
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
			options := DefaultManagerOptions()
			options.Components = []Component{{Name: "gone", NeedsLeadership: needsLeadership, Run: func(context.Context) error {
				runtime.Goexit()
				return nil
			}}}
			m, err := NewManager(options)
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
		"says so": {Component{Run: func(ctx context.Context) error { <-ctx.Done(); return nil }, Ready: func(context.Context) error { return failure }},
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
					m := manage(t, managerOptions(j.everywhere("first"), test.broken, j.everywhere("second"), j.leading("not led")))
					if err := <-m.result; err == nil || err.Error() != test.want {
						t.Errorf("the end is %v", err)
					}
					want := []string{"first runs", "first is told", "first ends"}
					if leader { // those that run everywhere have been started before
						want = []string{"first runs", "second runs", "second is told", "second ends", "first is told", "first ends"}
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
			letGo := make(chan struct{})
			stubborn := Component{Name: "stubborn", NeedsLeadership: leader, Run: func(context.Context) error { <-letGo; return nil }}
			if leader {
				stubborn.Drain = func(context.Context) error { j.note("stubborn drains while it runs"); return nil }
			}
			first := j.leading("first")
			o, lock := with(t, &j, managerOptions(first, stubborn, j.everywhere("serving")))
			m := manage(t, o)
			synctest.Wait()
			j.take()
			began := time.Now()
			err := m.end()
			if !errors.Is(err, ErrNotStopped) || err.Error() != `component "stubborn" has not stopped in time` {
				t.Errorf("the end is %v", err)
			}
			if took := time.Since(began); took > o.StopGracePeriod+lastMoment+time.Second {
				t.Errorf("it took %s", took)
			}
			want := []string{"first is told", "first ends", "released", "first drains", "serving is told", "serving ends"}
			if leader {
				want = slices.DeleteFunc(want, func(entry string) bool { return entry == "released" })
			}
			j.require(t, want...)
			if held := lock.store.holder("lease") == "a"; held != leader {
				t.Errorf("the lease is held: %t, while leader work goes on: %t", held, leader)
			}
			close(letGo)
		})
	}
}

func TestDrainIsBoundedAndNamesWhatHasNotEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		letGo := make(chan struct{})
		stubborn := j.leading("stubborn")
		stubborn.Drain = func(context.Context) error { <-letGo; return nil }
		m := manage(t, managerOptions(stubborn, j.everywhere("serving")))
		synctest.Wait()
		j.take()
		if err := m.end(); !errors.Is(err, ErrNotStopped) || !strings.Contains(err.Error(), `draining component "stubborn"`) {
			t.Errorf("the end is %v", err)
		}
		j.require(t, "stubborn is told", "stubborn ends", "serving is told", "serving ends")
		close(letGo)
	})
}

// A Drain that is late once says nothing about the election after it.
func TestDrainThatWasLeftBehindIsNoErrorOnceItHasReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		letGo := make(chan struct{})
		stubborn := j.leading("stubborn")
		stubborn.Drain = func(context.Context) error {
			<-letGo
			j.note("stubborn drains")
			return nil
		}
		o, lock := with(t, &j, managerOptions(j.leading("sink"), stubborn))
		m := manage(t, o)
		way := lock.way
		elapse(time.Second)
		lock.obstruct(refused)
		elapse(time.Minute)
		j.take()
		close(letGo)
		elapse(time.Minute)
		j.require(t, "stubborn drains")
		lock.obstruct(way)
		elapse(3 * time.Second)
		j.require(t, "sink runs", "stubborn runs")
		if err := m.end(); err != nil {
			t.Error(err)
		}
		j.require(t, "stubborn is told", "stubborn ends", "sink is told", "sink ends", "released", "stubborn drains", "sink drains")
	})
}

// Its work must not run beside it, and nor must another Drain.
func TestDrainThatGoesOnIsNotCalledAgain(t *testing.T) {
	for _, elected := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			var j journal
			letGo := make(chan struct{})
			stubborn := j.leading("stubborn")
			stubborn.Drain = func(context.Context) error {
				j.note("stubborn drains")
				<-letGo
				return nil
			}
			o, lock := with(t, &j, managerOptions(j.leading("sink"), stubborn))
			m := manage(t, o)
			way := lock.way
			elapse(time.Second)
			lock.obstruct(refused)
			elapse(time.Minute)
			j.take()
			lock.obstruct(way)
			want := []string{"sink drains"} // the lease is left to expire, as after any work that goes on
			if !elected {
				want = []string{"released", "sink drains"}
				m.stop()
			}
			err := <-m.result
			if !errors.Is(err, ErrNotStopped) || err.Error() != `draining component "stubborn": has not stopped in time` {
				t.Errorf("elected %t: the end is %v", elected, err)
			}
			j.require(t, want...)
			close(letGo)
		})
	}
}

func TestLeaderWorkIsNotBegunDuringAStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		o, lock := with(t, &j, managerOptions(j.everywhere("serving"), j.leading("source")))
		acquiring, arrive := make(chan struct{}), make(chan struct{})
		lock.obstruct(only(opCreate, func(_ context.Context, _ operation, ask func() error) error {
			close(acquiring)
			<-arrive
			return ask()
		}))
		m := manage(t, o)
		<-acquiring
		m.stop()
		close(arrive)
		if err := <-m.result; err != nil {
			t.Error(err)
		}
		j.require(t, "serving runs", "serving is told", "serving ends")
	})
}

// The stop comes while the first of the leader's components gets ready.
func TestStopDuringTheStartOfLeaderWorkStartsNoMoreOfIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		o, _ := with(t, &j, managerOptions(j.ready(j.leading("sink"), time.Hour), j.leading("source")))
		m := manage(t, o)
		elapse(time.Minute)
		if err := m.end(); err != nil {
			t.Error(err)
		}
		j.require(t, "sink runs", "sink is told", "sink ends", "released", "sink drains")
	})
}

func TestLostLeaseStopsTheProcessIfTheElectorEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		lock := newLock(newStore(), "lease", "a")
		eo := options(lock)
		eo.OnLost = Exit
		e, err := New(eo)
		if err != nil {
			t.Fatal(err)
		}
		o := managerOptions(j.everywhere("serving"), j.leading("source"))
		o.Elector = e
		m := manage(t, o)
		synctest.Wait()
		lock.obstruct(refused)
		if err := <-m.result; !errors.Is(err, ErrLeaseLost) {
			t.Errorf("the end is %v", err)
		}
		got := j.take()
		if want := []string{"serving runs", "source runs", "source is told", "source ends", "source drains"}; !slices.Equal(got[:5], want) {
			t.Errorf("happened: %q", got)
		}
		if want := []string{"serving is told", "serving ends"}; !slices.Equal(got[len(got)-2:], want) {
			t.Errorf("happened at the end: %q", got)
		}
	})
}

func TestManagerOptionsAreValidatedOneByOne(t *testing.T) {
	var j journal
	for want, spoil := range map[string]func(*ManagerOptions){
		"a component has no name":                      func(o *ManagerOptions) { o.Components[0].Name = "" },
		`two components are called "source"`:           func(o *ManagerOptions) { o.Components[0].Name = "source" },
		`component "serving" has nothing to run`:       func(o *ManagerOptions) { o.Components[0].Run = nil },
		`component "source" is to drain, but does not`: func(o *ManagerOptions) { o.Components[1].NeedsLeadership = false },
		"the stop grace period must be greater than 0": func(o *ManagerOptions) { o.StopGracePeriod = 0 },
		"the drain grace period must be greater than":  func(o *ManagerOptions) { o.DrainGracePeriod = -1 },
	} {
		o := managerOptions(j.everywhere("serving"), j.leading("source"))
		spoil(&o)
		if _, err := NewManager(o); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}
