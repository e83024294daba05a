package election

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

// ErrNotStopped is wrapped by what the leader's work returns if some of it goes
// on. Its Lease is not released then, but left to expire.
var ErrNotStopped = errors.New("has not stopped in time")

// errStopping is the end of a request whose answer is of no use any more,
// because the leader's work has returned.
var errStopping = errors.New("the leader's work has returned")

var errRunning = errors.New("the elector is running already")

// Elector takes part in an election. Run does the work, in the goroutine that
// calls it and in some that it waits for; all other methods are safe for use by
// many goroutines at any time.
type Elector struct {
	options  Options
	identity string
	calls    *calls
	metrics  *metrics

	running atomic.Bool
	term    atomic.Pointer[term]   // nil on a standby
	leader  atomic.Pointer[Leader] // never nil
	renewed atomic.Pointer[time.Time]
	news    chan struct{} // the leader has changed
	hints   chan struct{} // the lock's record may have changed

	// reported is whom OnNewLeader was told of last, in Run or in Follow.
	reported Leader

	// What follows belongs to Run's goroutine.

	observed  observation
	held      resourcelock.LeaderElectionRecord // what this process wrote, or read of itself, last
	published Announcement                      // with it
	// named is whether the record may name this process: something was written,
	// and nothing that was read since says otherwise.
	named bool
	// unanswered is whether something was written that may yet take effect: nobody
	// knows what became of it, and the record was not seen to change since.
	unanswered bool
	// unsure is whether the last read has failed. The lock may know an answer
	// that came too late, and would overwrite what nobody has looked at.
	unsure bool
	// missed counts the acquisitions in a row that were tried in vain while nobody
	// held the Lease.
	missed int
}

// New returns an Elector that does nothing before Run. An error is one of the
// options or of registering metrics.
func New(o Options) (*Elector, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("election options: %w", err)
	}
	e := &Elector{
		options:  o,
		identity: o.Lock.Identity(),
		calls:    newCalls(optimistic(o.Lock), o.RequestTimeout),
		news:     make(chan struct{}, 1),
		hints:    make(chan struct{}, 1),
	}
	e.leader.Store(&Leader{})
	var err error
	if e.metrics, err = newMetrics(e, o.Registerer); err != nil {
		return nil, err
	}
	return e, nil
}

// Identity is what this process is called in the lock.
func (e *Elector) Identity() string { return e.identity }

// Leading tells whether this process leads, by the clocks, at this instant.
func (e *Elector) Leading() bool {
	t := e.term.Load()
	return t != nil && t.leading()
}

// Watchdog returns a health check, as k8s.io/apiserver's healthz.NamedCheck
// takes one. It fails in a process that lost the Lease, or should have, longer
// than the given time ago, and whose leader work has still not ended.
func (e *Elector) Watchdog(tolerance time.Duration) func(*http.Request) error {
	return func(*http.Request) error {
		t := e.term.Load()
		if t == nil {
			return nil
		}
		if late := t.pastEnd(); late > tolerance {
			return fmt.Errorf("the lease is lost, and the leader's work goes on %s later", late.Round(time.Millisecond))
		}
		return nil
	}
}

// Run stands by, has the leader's work done each time this process is elected,
// and stands by again when the Lease is lost; with the option Exit it ends then,
// with ErrLeaseLost.
//
// It ends in order when ctx does or when lead returns by itself: the context of
// lead is over, lead returns, nobody leads, the Lease is released. It returns
// what lead returned, unless that is only that its context was over. If the
// release fails within ReleaseTimeout, that is logged, and the Lease expires.
//
// The context of lead is over when ctx is, or when the Lease is lost: then its
// cause is ErrLeaseLost. While lead finishes what is in flight after ctx has
// ended, the Lease goes on being renewed. lead must return when its context is
// over: until it has, it is neither called again nor does Run return. lead is
// not called once ctx is over. An acquisition that is on its way then is not
// cancelled, since nobody would know what became of it, but waited for, for up to
// half of ReleaseTimeout, and released in what is left of it.
//
// Run may be called again when it has returned, not before.
func (e *Elector) Run(ctx context.Context, lead func(context.Context) error) error {
	if !e.running.CompareAndSwap(false, true) {
		return errRunning
	}
	defer e.running.Store(false)
	defer e.startHelpers(ctx)()

	overAt, forget := noteEnd(ctx)
	defer forget()
	from := overAt // a stop that meets a standby is bounded from its beginning
	var err error
	for again := true; again && ctx.Err() == nil; {
		acquired, ok := e.standBy(ctx)
		if !ok || ctx.Err() != nil {
			from = overAt
			break // stopped, maybe while acquiring: the work is not begun
		}
		again, err = e.serve(ctx, acquired, lead)
		from = time.Now // the work has returned
	}
	e.leave(ctx, from(), err)
	return err
}

// noteEnd returns what tells when a context was over, or the present time if it is
// not, until it is to be forgotten.
func noteEnd(ctx context.Context) (overAt func() time.Time, forget func() bool) {
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

// Follow reads the lock without taking part until ctx is over, so that Leader
// and OnNewLeader go on telling who leads after Run has returned: a process
// that has handed over may have something to pass on. An error is that Run, or
// another Follow, has not returned.
func (e *Elector) Follow(ctx context.Context) error {
	if !e.running.CompareAndSwap(false, true) {
		return errRunning
	}
	defer e.running.Store(false)
	defer e.startHelpers(ctx)()
	e.follow(ctx)
	return nil
}

// startHelpers starts what goes on for as long as Run does, and returns what
// ends it.
func (e *Elector) startHelpers(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var helpers sync.WaitGroup
	if e.options.Watch != nil {
		helpers.Go(func() { e.watch(ctx) })
	}
	if e.options.OnNewLeader != nil {
		helpers.Go(func() { e.reportLeaders(ctx) })
	}
	return func() {
		cancel()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			helpers.Wait()
		}()
		select {
		case <-ended:
		case <-time.After(lastMoment):
			klog.FromContext(ctx).Error(nil, "The watch of the lease, or what is told of new leaders, is left behind, since it does not return", "lock", e.options.Lock.Describe())
		}
	}
}

// serve leads for one term. It tells whether to stand by again.
func (e *Elector) serve(ctx context.Context, acquired moment, lead func(context.Context) error) (again bool, err error) {
	logger := klog.FromContext(ctx)
	t := newTerm(ctx, acquired, e.options.RenewDeadline)
	e.term.Store(t)
	e.see(Leader{Identity: e.identity, Announcement: e.published})
	e.metrics.changed(became)
	logger.Info("Became the leader", "lock", e.options.Lock.Describe(), "identity", e.identity)

	// The work runs until it returns; renewals are made until then.
	working, returned := context.WithCancelCause(context.WithoutCancel(ctx))
	go func() {
		defer returned(errStopping)
		err = lead(leadership{t.context, t})
	}()
	e.calls.recordEvent(working, "became leader")
	e.renewUntil(working, t)
	cause := e.stepDown(working, t)
	e.follow(working) // whoever leads before the work of a lost term has returned
	e.term.Store(nil)
	err = unlessTold(t.context, err)
	if err != nil || !errors.Is(cause, ErrLeaseLost) {
		return false, err
	}
	if e.options.OnLost == Exit && ctx.Err() == nil {
		return false, cause
	}
	return true, nil
}

// stepDown ends the term, by which nobody leads, and tells why it has ended. The
// Lease is let go later, when the work has returned.
func (e *Elector) stepDown(ctx context.Context, t *term) (cause error) {
	t.leading() // notices a deadline that has passed
	cause = t.end(errGivenUp)
	if e.leader.Load().Identity == e.identity {
		e.see(Leader{}) // a successor that was found stays known
	}
	logger := klog.FromContext(ctx).WithValues("lock", e.options.Lock.Describe(), "identity", e.identity)
	if errors.Is(cause, ErrLeaseLost) {
		e.metrics.changed(lost)
		logger.Error(cause, "Lost the lease: leader work stops")
	}
	e.calls.recordEvent(ctx, "stopped leading")
	return cause
}

// unlessTold leaves out an error that only says that the context was over.
func unlessTold(ctx context.Context, err error) error {
	if ctx.Err() != nil && !errors.Is(err, ErrNotStopped) && (errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx))) {
		return nil
	}
	return err
}

// leave is the end of Run, for which err is the reason if there is one. It takes at
// most ReleaseTimeout from the given time on.
func (e *Elector) leave(ctx context.Context, from time.Time, err error) {
	ctx, cancel := context.WithDeadlineCause(context.WithoutCancel(ctx), from.Add(e.options.ReleaseTimeout),
		fmt.Errorf("not done within %s", e.options.ReleaseTimeout))
	defer cancel()
	logger := klog.FromContext(ctx).WithValues("lock", e.options.Lock.Describe(), "identity", e.identity)
	switch {
	case !e.named:
	case errors.Is(err, ErrNotStopped):
		logger.Error(err, "The lease is not released, since some of the leader's work goes on")
	default:
		if err := e.release(ctx); err != nil {
			logger.Error(err, "The lease is not released, and left to expire")
		}
	}
	if err := e.calls.wait(ctx); err != nil {
		logger.Error(err, "A call to the lock is left behind, since it does not return")
	}
}

// releaseRetry is the time between two attempts to release.
const releaseRetry = 100 * time.Millisecond

// release lets the Lease go, if it is this process's, so that a standby can
// take it at once.
func (e *Elector) release(ctx context.Context) error {
	for conflicts := 0; ; {
		err := e.tryRelease(ctx)
		if err == nil {
			return nil
		}
		if isConflict(err) {
			if conflicts++; conflicts == 1 {
				continue // changed meanwhile: what is there now decides
			}
		}
		select {
		case <-time.After(releaseRetry):
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}

// tryRelease reads the record, and clears the holder if it is this process. A
// former leader that has been stopped for long finds its successor there. An
// acquisition that was given up may be on its way still: it was made upon the
// record as it was seen last, or upon none, and when something is written upon that
// it comes too late.
func (e *Elector) tryRelease(ctx context.Context) error {
	a := e.calls.get(ctx)
	clear := e.calls.release
	switch {
	case isNotFound(a.err) && e.unanswered:
		a.record, clear = &resourcelock.LeaderElectionRecord{}, e.calls.create
	case isNotFound(a.err):
		e.named = false
		return nil
	case a.err != nil:
		return a.err
	case a.named:
	case e.unanswered && string(a.raw) == e.observed.raw:
		clear = e.calls.update
	default:
		e.named = false
		return nil
	}
	at := metav1.NewTime(time.Now())
	err := clear(ctx, resourcelock.LeaderElectionRecord{
		LeaseDurationSeconds: 1, // what others than this package wait for
		AcquireTime:          at,
		RenewTime:            at,
		LeaderTransitions:    a.record.LeaderTransitions,
	}).err
	if err != nil {
		return err
	}
	e.named = false
	e.metrics.changed(released)
	klog.FromContext(ctx).Info("Released the lease", "lock", e.options.Lock.Describe(), "identity", e.identity)
	return nil
}
