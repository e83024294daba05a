package election

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var leases = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

// stopping is a context that is over, of which what was derived knows nothing yet.
type stopping struct{ context.Context }

func (stopping) Done() <-chan struct{} { return nil }
func (stopping) Err() error            { return context.Canceled }

func TestStopDuringAReadOfAFreeLeaseAcquiresNothing(t *testing.T) {
	for _, missing := range []bool{true, false} {
		s := newStore()
		if !missing {
			if _, err := s.put("lease", object{}); err != nil {
				t.Fatal(err)
			}
		}
		lock := newLock(s, "lease", "a")
		r := newReplica(t, lock)
		if _, ok := r.tryAcquire(stopping{t.Context()}); ok {
			t.Error("acquired")
		}
		if asked := lock.requests(); asked[opGet] != 1 || asked[opCreate]+asked[opUpdate] != 0 {
			t.Errorf("the Lease is missing %t, asked for %v", missing, asked)
		}
		if _, ok := r.tryAcquire(t.Context()); !ok {
			t.Error("the Lease is not free")
		}
	}
}

// After a first failure it is tried again at once, and after any conflict: another was
// faster, which is nothing to log.
func TestWhenAnAcquisitionThatFailedIsTriedAgainAtOnce(t *testing.T) {
	conflict, exists := apierrors.NewConflict(leases, "lease", nil), apierrors.NewAlreadyExists(leases, "lease")
	for name, test := range map[string]struct {
		missed       int // before
		err          error
		over         bool // the context
		again, tells bool
	}{
		"first":                      {0, errBroken, false, true, true},
		"second":                     {1, errBroken, false, false, true},
		"first, at a stop":           {0, errBroken, true, true, false},
		"first, a conflict":          {0, conflict, false, true, false},
		"second, a conflict":         {1, conflict, false, true, false},
		"tenth, was there before":    {9, exists, false, true, false},
		"second, a conflict, a stop": {1, conflict, true, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			var logged log
			r := newReplica(t, newLock(newStore(), "lease", "a"))
			r.missed = test.missed
			ctx, cancel := context.WithCancel(logged.context(t.Context()))
			defer cancel()
			if test.over {
				cancel()
			}
			r.missedIt(ctx, test.err)
			if again := len(r.hints) == 1; again != test.again || r.missed != test.missed+1 {
				t.Errorf("at once %t, missed %d times", again, r.missed)
			}
			if test.tells {
				logged.require(t, "The lease could not be acquired", test.err.Error())
			} else {
				logged.require(t)
			}
		})
	}
}

// That the lease is another's, or that the work is over, is no failure of a renewal.
func TestWhichRenewalsHaveFailed(t *testing.T) {
	for name, test := range map[string]struct {
		way    way
		holder string // in the lock by then
		over   bool   // the work
		failed float64
	}{
		"succeeds":            {nil, "a", false, 0},
		"fails":               {refused, "a", false, 1},
		"is not answered":     {hanging, "a", false, 1},
		"is another's":        {nil, "b", false, 0},
		"the work is over":    {hanging, "a", true, 0},
		"and is another's":    {nil, "b", true, 0},
		"fails, and is over":  {refused, "a", true, 0},
		"fails, is another's": {only(opUpdate, refused), "b", false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var logged log
				s := newStore()
				lock := newLock(s, "lease", "a")
				r := newReplica(t, lock)
				start, ok := r.tryAcquire(t.Context())
				if !ok {
					t.Fatal("not acquired")
				}
				term := newTerm(t.Context(), start, r.options.RenewDeadline)
				defer term.end(errGivenUp)
				if test.holder != "a" {
					now, err := s.get("lease")
					if err != nil {
						t.Fatal(err)
					}
					now.record.HolderIdentity = test.holder
					if _, err := s.put("lease", now); err != nil {
						t.Fatal(err)
					}
				}
				lock.obstruct(test.way)
				working, cancel := context.WithCancelCause(logged.context(t.Context()))
				defer cancel(nil)
				if test.over {
					cancel(errStopping)
				}
				wait := r.renew(working, term)
				if got := testutil.ToFloat64(r.metrics.failures); got != test.failed {
					t.Errorf("%v failures", got)
				}
				if test.failed > 0 {
					logged.require(t, "The lease could not be renewed")
				} else {
					logged.require(t)
				}
				if wait > r.options.RetryPeriod || wait <= 0 {
					t.Errorf("the next attempt is after %s", wait)
				}
			})
		})
	}
}

// loser leads one term that is lost at once, and follows until it is told not to.
type loser struct {
	follows time.Duration // after it was told to end
	ended   bool
}

func (l *loser) Run(ctx context.Context, lead func(context.Context) error) error {
	lost, lose := context.WithCancelCause(ctx)
	time.AfterFunc(time.Second, func() { lose(ErrLeaseLost) })
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
		o := managerOptions(j.leading("source"))
		o.Elector = l
		m := manage(t, o)
		elapse(3 * time.Second)
		if err := m.end(); err != nil {
			t.Error(err)
		}
		if !l.ended {
			t.Error("the Lease is followed after Run has returned")
		}
	})
}

// A process whose work fails when its Lease is lost ends: what is left over is drained
// once, by its end, and not while it stands by as well.
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
		"goes on": {func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(time.Hour)
			return nil
		}, []string{"source drains: <nil>"}, ErrNotStopped},
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
				o := managerOptions(source, sink)
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
