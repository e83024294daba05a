package election

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/eventd/eventd/internal/grace"
)

// ErrNotStopped is wrapped by the error of leader work that has not ended. Then the
// Lease is not released, but left to expire.
var ErrNotStopped = errors.New("has not stopped in time")

// errStopping is the cause of the end of requests when the leader's work has
// returned: their answers are not needed any more.
var errStopping = errors.New("the leader's work has returned")

var errRunning = errors.New("the elector is running already")

// callbackTimeout is how long Run waits at its end for Watch and OnNewLeader.
const callbackTimeout = time.Second

// Elector takes part in an election. Run does the work, in the goroutine of its
// caller and in others that it waits for. All other methods are safe for concurrent
// use at any time.
type Elector struct {
	options  Options
	identity string
	calls    *calls
	metrics  *metrics

	running       atomic.Bool
	term          atomic.Pointer[term]   // nil on a standby
	leader        atomic.Pointer[Leader] // this and the next two are never nil
	renewed       atomic.Pointer[time.Time]
	tenure        atomic.Pointer[Tenure]
	leaderChanged chan struct{} // wakes up reportLeaders
	hints         chan struct{} // the lock's record may have changed

	// reported is the last argument of OnNewLeader. It belongs to reportLeaders.
	reported Leader

	// The fields below belong to the goroutine of Run or Follow.

	observed  observation
	held      resourcelock.LeaderElectionRecord // this process's record, as last written or read
	published Announcement                      // written with it
	// mayHold is whether the lock's record may name this process: it has written
	// one, and no later read shows another.
	mayHold bool
	// inDoubt is whether a write without an answer may still take effect. It is
	// resolved by an acknowledged write, or when the record is seen to change.
	inDoubt bool
	// unread is whether the last read has failed. The lock may have received its
	// answer too late, and would overwrite a record that the Elector has not seen.
	unread bool
	// missed is the number of successive failed acquisitions of a free Lease.
	missed int
}

// New returns an Elector. It does nothing before Run. New fails if an option is
// invalid or a metric cannot be registered.
func New(o Options) (*Elector, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("election options: %w", err)
	}
	e := &Elector{
		options:       o,
		identity:      o.Lock.Identity(),
		calls:         &calls{lock: o.Lock, timeout: o.RequestTimeout, busy: make(chan struct{}, 1)},
		leaderChanged: make(chan struct{}, 1),
		hints:         make(chan struct{}, 1),
	}
	e.leader.Store(&Leader{})
	e.renewed.Store(&time.Time{})
	e.tenure.Store(&Tenure{})
	var err error
	if e.metrics, err = newMetrics(e, o.Registerer); err != nil {
		return nil, err
	}
	return e, nil
}

// Identity returns the name of this process in the lock.
func (e *Elector) Identity() string { return e.identity }

// Leading reports whether this process leads at this instant, by the clock.
func (e *Elector) Leading() bool {
	t := e.term.Load()
	return t != nil && t.leading()
}

// Watchdog returns a health check for k8s.io/apiserver's healthz.NamedCheck. It
// fails if the leader's work has not ended within tolerance after the Lease was
// lost.
func (e *Elector) Watchdog(tolerance time.Duration) func(*http.Request) error {
	return func(*http.Request) error {
		t := e.term.Load()
		if t == nil {
			return nil
		}
		if late := t.overdue(); late > tolerance {
			return fmt.Errorf("the lease was lost %s ago, and the leader's work has not ended", late.Round(time.Millisecond))
		}
		return nil
	}
}

// Run takes part in the election until ctx ends or lead returns by itself. It calls
// lead each time this process is elected. When the Lease is lost it stands by
// again, or returns ErrLeaseLost with the option Exit.
//
// At its end, the context of lead ends, lead returns, Leading becomes false, and
// the Lease is released. If the release fails within ReleaseTimeout, this is
// logged, and the Lease expires. Run returns the error of lead, unless that only
// reports the end of its context.
//
// The context of lead ends when ctx does, or when the Lease is lost: then its cause
// is ErrLeaseLost. The Lease is renewed until lead returns. lead must return when
// its context has ended: Run waits for it, and does not call it again before.
//
// lead is not called after ctx has ended. An acquisition in flight is not cancelled
// then, because its outcome would be in doubt. Run waits for it for up to half of
// ReleaseTimeout, and releases the Lease in the rest of it.
//
// Run may be called again after it has returned.
func (e *Elector) Run(ctx context.Context, lead func(context.Context) error) error {
	if !e.running.CompareAndSwap(false, true) {
		return errRunning
	}
	defer e.running.Store(false)
	defer e.startCallbacks(ctx)()

	cancelledAt, forget := recordCancellation(ctx)
	defer forget()
	from := cancelledAt // the stop of a standby is limited from its beginning
	var err error
	for again := true; again && ctx.Err() == nil; {
		acquired, ok := e.standBy(ctx)
		if !ok || ctx.Err() != nil {
			from = cancelledAt
			break // stopped, maybe during an acquisition: do not call lead
		}
		again, err = e.serve(ctx, acquired, lead)
		from = time.Now // the work has returned
	}
	e.finish(ctx, from(), err)
	return err
}

// recordCancellation returns a function that returns when ctx ended, or the present
// time if it has not.
func recordCancellation(ctx context.Context) (cancelledAt func() time.Time, forget func() bool) {
	var at atomic.Pointer[time.Time]
	forget = context.AfterFunc(ctx, func() {
		now := time.Now()
		at.Store(&now)
	})
	return func() time.Time {
		if at := at.Load(); at != nil {
			return *at
		}
		return time.Now()
	}, forget
}

// Follow reads the lock without taking part, until ctx ends. Leader and OnNewLeader
// stay up to date meanwhile. A process that has handed over uses it to find its
// successor. It fails while Run or another Follow runs.
func (e *Elector) Follow(ctx context.Context) error {
	if !e.running.CompareAndSwap(false, true) {
		return errRunning
	}
	defer e.running.Store(false)
	defer e.startCallbacks(ctx)()
	e.follow(ctx)
	return nil
}

// startCallbacks starts the goroutines that call Watch and OnNewLeader. They run
// until stop is called, which does not wait for a callback that never returns.
func (e *Elector) startCallbacks(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var callbacks sync.WaitGroup
	if e.options.Watch != nil {
		callbacks.Go(func() { e.watch(ctx) })
	}
	if e.options.OnNewLeader != nil {
		callbacks.Go(func() { e.reportLeaders(ctx) })
	}
	return func() {
		cancel()
		if !grace.RunFor(callbackTimeout, callbacks.Wait) {
			e.logger(ctx).Error(nil, "Abandoned Watch or OnNewLeader, which has not returned")
		}
	}
}

// logger returns a logger that names the lock.
func (e *Elector) logger(ctx context.Context) klog.Logger {
	return klog.FromContext(ctx).WithValues("lock", e.options.Lock.Describe())
}

// serve leads for one term. It reports whether to stand by again.
func (e *Elector) serve(ctx context.Context, acquired moment, lead func(context.Context) error) (again bool, err error) {
	t := newTerm(ctx, acquired, e.options.RenewDeadline)
	e.term.Store(t)
	e.setLeader(Leader{Identity: e.identity, Announcement: e.published})
	e.metrics.changed(became)
	e.logger(ctx).Info("Became the leader", "identity", e.identity)

	// The Lease is renewed until the work returns.
	working, returned := context.WithCancelCause(context.WithoutCancel(ctx))
	go func() {
		defer returned(errStopping)
		err = lead(termContext{t.context, t})
	}()
	e.calls.recordEvent(working, "became leader")
	e.renewUntil(working, t)
	cause := e.stepDown(working, t)
	e.follow(working) // while the work of a lost term has not returned
	e.term.Store(nil)
	err = ignoreCancellation(t.context, err)
	if err != nil || !errors.Is(cause, ErrLeaseLost) {
		return false, err
	}
	if e.options.OnLost == Exit && ctx.Err() == nil {
		return false, cause
	}
	return true, nil
}

// stepDown ends the term and returns the cause. The Lease is released later, when
// the work has returned.
func (e *Elector) stepDown(ctx context.Context, t *term) (cause error) {
	t.leading() // ends the term if the deadline has passed
	cause = t.end(errStepDown)
	if e.leader.Load().Identity == e.identity {
		e.setLeader(Leader{}) // but keep a successor that was read
	}
	if errors.Is(cause, ErrLeaseLost) {
		e.metrics.changed(lost)
		e.logger(ctx).Error(cause, "Lost the lease: leader work stops", "identity", e.identity)
	}
	e.calls.recordEvent(ctx, "stopped leading")
	return cause
}

// ignoreCancellation returns nil for an error that only reports the end of ctx.
func ignoreCancellation(ctx context.Context, err error) error {
	if ctx.Err() != nil && !errors.Is(err, ErrNotStopped) && (errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx))) {
		return nil
	}
	return err
}
