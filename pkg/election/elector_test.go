package election

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/eventd/eventd/test/fakelock"
	testmetrics "github.com/eventd/eventd/test/metrics"
)

func TestWorkDecidesWhatRunReturnsAndWhetherTheLeaseIsReleased(t *testing.T) {
	failure := errors.New("out of paper")
	type work = func(ctx context.Context, lock fakeLock, stop func()) error
	returns := func(err error) work {
		return func(context.Context, fakeLock, func()) error { return err }
	}
	returnsAfterALoss := func(err error) work {
		return func(ctx context.Context, lock fakeLock, _ func()) error {
			lock.Intercept(fakelock.Only(fakelock.Update, fakelock.Fail))
			<-ctx.Done()
			return err
		}
	}
	type test struct {
		work     work
		onLost   OnLost
		want     error
		released bool
		lost     float64
	}
	each(t, map[string]test{
		"returns":                         {returns(nil), StandBy, nil, true, 0},
		"fails":                           {returns(failure), StandBy, failure, true, 0},
		"returns the cause of a loss":     {returnsAfterALoss(ErrLeaseLost), StandBy, nil, false, 1},
		"fails after a loss":              {returnsAfterALoss(failure), StandBy, failure, false, 1},
		"returns after a loss, with Exit": {returnsAfterALoss(nil), Exit, ErrLeaseLost, false, 1},
		"loses the Lease during a stop, with Exit": {func(ctx context.Context, lock fakeLock, stop func()) error {
			stop()
			lock.Intercept(fakelock.Only(fakelock.Update, fakelock.Fail))
			elapse(time.Minute)
			return ctx.Err()
		}, Exit, nil, false, 1},
		"has not stopped": {returns(ErrNotStopped), StandBy, ErrNotStopped, false, 0},
		"has not stopped when cancelled": {func(ctx context.Context, _ fakeLock, stop func()) error {
			stop()
			<-ctx.Done()
			return fmt.Errorf("%w: %w", ErrNotStopped, ctx.Err())
		}, StandBy, ErrNotStopped, false, 0},
	}, func(t *testing.T, test test) {
		r := newReplica(t, newLock(fakelock.NewStore(), "lease", "a"), func(o *Options) { o.OnLost = test.onLost })
		ctx, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		err := r.Run(ctx, func(ctx context.Context) error { return test.work(ctx, r.lock, stop) })
		if !errors.Is(err, test.want) {
			t.Errorf("Run returned %v, want %v", err, test.want)
		}
		if released := r.lock.Holder() == ""; released != test.released {
			t.Errorf("released %t", released)
		}
		if counted := testutil.ToFloat64(r.metrics.transitions.WithLabelValues("released")) == 1; counted != test.released {
			t.Errorf("a release is counted: %t", counted)
		}
		if lost := testutil.ToFloat64(r.metrics.transitions.WithLabelValues("lost")); lost != test.lost {
			t.Errorf("%v losses are counted", lost)
		}
	})
}

func TestRunAndFollowTwiceAtOnceIsAnErrorAndAgainIsNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a := oneReplica(t)
		run := func() error { return a.Run(t.Context(), a.lead) }
		follow := func() error { return a.Follow(t.Context()) }
		if run() == nil || follow() == nil {
			t.Error("runs twice")
		}
		a.end()
		for range 2 {
			stop := a.beginFollow()
			synctest.Wait()
			if run() == nil || follow() == nil {
				t.Error("runs while it follows")
			}
			stop()
		}
		a.start()
		requireLeader(t, a)
	})
}

func TestErrorsOfOptionsNameTheField(t *testing.T) {
	valid := options(newLock(fakelock.NewStore(), "lease", "a"))
	if err := valid.Validate(); err != nil {
		t.Fatal(err)
	}
	for want, spoil := range map[string]func(*Options){
		"Lock must be set":           func(o *Options) { o.Lock = nil },
		"Lock must have an identity": func(o *Options) { o.Lock = newLock(nil, "lease", "") },
		"LeaseDuration must be a whole number of seconds, and at least 1s, got 15.5s":       func(o *Options) { o.LeaseDuration = 15500 * time.Millisecond },
		"LeaseDuration must be a whole number of seconds, and at least 1s, got 596524h0m0s": func(o *Options) { o.LeaseDuration = 596524 * time.Hour },
		"LeaseDuration must be greater than RenewDeadline (10s), got 10s":                   func(o *Options) { o.LeaseDuration = 10 * time.Second },
		"RenewDeadline must be greater than 1.2 times RetryPeriod (2s), got 2.4s": func(o *Options) {
			o.RenewDeadline, o.RequestTimeout = 2400*time.Millisecond, time.Second
		},
		"RetryPeriod must be greater than 0, got 0s":                    func(o *Options) { o.RetryPeriod = 0 },
		"RequestTimeout must be greater than 0, got 0s":                 func(o *Options) { o.RequestTimeout = 0 },
		"RequestTimeout must be less than RenewDeadline (10s), got 10s": func(o *Options) { o.RequestTimeout = 10 * time.Second },
		"ReleaseTimeout must be greater than 0, got 0s":                 func(o *Options) { o.ReleaseTimeout = 0 },
		`OnLost must be "standby" or "exit", got "panic"`:               func(o *Options) { o.OnLost = "panic" },
	} {
		o := valid
		spoil(&o)
		if _, err := New(o); err == nil || err.Error() != "election options: "+want {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewPedanticRegistry()
		_, a := oneReplica(t, func(o *Options) { o.Registerer = registry })
		elapse(5 * time.Second)
		want := testmetrics.Metrics{
			"eventd_election_handover_duration_seconds{}":            0, // as every histogram
			"eventd_election_renewal_duration_seconds{}":             0,
			"eventd_election_deadline_seconds{}":                     9,
			"eventd_election_leading{}":                              1,
			"eventd_election_renewals_failed_total{}":                0,
			"eventd_election_transitions_total{transition=became}":   1,
			"eventd_election_transitions_total{transition=lost}":     0,
			"eventd_election_transitions_total{transition=released}": 0,
			"eventd_election_watch_restarts_total{}":                 0,
		}
		if diff := cmp.Diff(want, testmetrics.Gather(t, registry)); diff != "" {
			t.Error(diff)
		}
		if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
			t.Errorf("%v %v", problems, err)
		}
		a.finish = time.Minute
		a.lock.Intercept(fakelock.Fail)
		elapse(12 * time.Second)
		if left := testmetrics.Gather(t, registry).Sum("eventd_election_deadline_seconds"); left != -3 {
			t.Errorf("%v s are left of the deadline, want -3", left)
		}
	})
}
