package election

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// JitterFactor is how much longer than RetryPeriod a standby may wait between
// two reads, so that standbys which started together do not stay together.
const JitterFactor = 1.2

// OnLost is what an Elector does when it has lost the Lease.
type OnLost string

const (
	// StandBy goes on as a standby, which can be elected again.
	StandBy OnLost = "standby"
	// Exit ends Run with ErrLeaseLost.
	Exit OnLost = "exit"
)

// Options are what an Elector needs and what it may take. Begin with
// DefaultOptions.
type Options struct {
	// Lock is what the holder is written to. Required. It is called by one
	// goroutine at a time. It must refuse to overwrite what it has not read, as
	// all locks over Kubernetes objects do by the object's resourceVersion.
	// client-go's MultiLock does not, for its second lock: it is taken apart,
	// and its two locks used as MultiLock of this package does. The identity
	// belongs to one process at a time.
	Lock resourcelock.Interface
	// LeaseDuration is how long after its last renewal the leader is left alone
	// by the others: a whole number of seconds. They go by what the leader's
	// record says, not by their own options.
	LeaseDuration time.Duration
	// RenewDeadline is how long after the beginning of its last successful
	// renewal the leader leads.
	RenewDeadline time.Duration
	// RetryPeriod is the time between two renewals of the leader, and between
	// two reads of a standby that nothing hints at a change. A renewal that has
	// failed is tried again sooner, the nearer the deadline the sooner.
	RetryPeriod time.Duration
	// RequestTimeout is how long one call to the lock may take; with less than
	// twice as much left until a deadline, half of that.
	RequestTimeout time.Duration
	// ReleaseTimeout is how long Run tries to release the Lease at its end. Of a
	// standby that is stopped while it acquires the Lease, half of that goes to the
	// acquisition.
	ReleaseTimeout time.Duration
	// Watch hints at changes of what the lock is kept in. It calls changed
	// whenever there may be one, and returns when it has ended, or its context
	// has; it is called again then. Nothing depends on a hint, or on its being
	// true: without Watch, or with one that is never heard of, a standby notices
	// a release by its next read, and a leader by its next renewal that the
	// record was changed under it. (*LeaseWatch).Watch is one.
	Watch func(ctx context.Context, changed func()) error
	// OnLost is what follows a lost Lease.
	OnLost OnLost
	// OnNewLeader is told who leads, or what it announces, whenever that
	// changes: this process, too, and the zero Leader when nobody is known to
	// lead. It is called by one goroutine, in order, and what has changed again
	// meanwhile is left out. Run waits for it to return, as for Watch, for up to a
	// second.
	OnNewLeader func(Leader)
	// Registerer takes the metrics; nil leaves them unregistered.
	Registerer prometheus.Registerer
}

// DefaultOptions returns the timing that kube components start with; Lock has
// yet to be set.
func DefaultOptions() Options {
	return Options{
		LeaseDuration:  15 * time.Second,
		RenewDeadline:  10 * time.Second,
		RetryPeriod:    2 * time.Second,
		RequestTimeout: 2500 * time.Millisecond, // an attempt of two requests that hang leaves 3 s of the deadline
		ReleaseTimeout: 5 * time.Second,
		OnLost:         StandBy,
	}
}

// Validate says what is wrong with the options, or nil.
func (o *Options) Validate() error {
	var errs []error
	switch {
	case o.Lock == nil:
		errs = append(errs, errors.New("a lock is required"))
	case o.Lock.Identity() == "":
		errs = append(errs, errors.New("the lock's identity must not be empty"))
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"retry period", o.RetryPeriod},
		{"request timeout", o.RequestTimeout},
		{"release timeout", o.ReleaseTimeout},
	} {
		if d.value <= 0 {
			errs = append(errs, fmt.Errorf("the %s must be greater than 0, not %s", d.name, d.value))
		}
	}
	if o.LeaseDuration <= 0 || o.LeaseDuration%time.Second != 0 || o.LeaseDuration/time.Second > math.MaxInt32 {
		// A Lease holds seconds, in 32 bits.
		errs = append(errs, fmt.Errorf("the lease duration must be a whole number of seconds, and at least 1s, not %s", o.LeaseDuration))
	}
	if o.LeaseDuration <= o.RenewDeadline {
		errs = append(errs, fmt.Errorf("the lease duration (%s) must be greater than the renew deadline (%s)", o.LeaseDuration, o.RenewDeadline))
	}
	if longest := jittered(o.RetryPeriod); o.RenewDeadline <= longest {
		errs = append(errs, fmt.Errorf("the renew deadline (%s) must be greater than %.1f times the retry period (%s)", o.RenewDeadline, JitterFactor, o.RetryPeriod))
	}
	if o.RequestTimeout >= o.RenewDeadline {
		errs = append(errs, fmt.Errorf("the request timeout (%s) must be less than the renew deadline (%s)", o.RequestTimeout, o.RenewDeadline))
	}
	if o.OnLost != StandBy && o.OnLost != Exit {
		errs = append(errs, fmt.Errorf("what follows a lost lease must be %q or %q, not %q", StandBy, Exit, o.OnLost))
	}
	return errors.Join(errs...)
}

// jittered is the longest that a period becomes by jitter.
func jittered(d time.Duration) time.Duration { return time.Duration(JitterFactor * float64(d)) }
