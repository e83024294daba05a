package election

import (
	"context"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/eventd/eventd/internal/violations"
)

// JitterFactor is the maximum ratio of a standby's wait between two reads to
// RetryPeriod. Jitter keeps standbys that started together from reading together.
const JitterFactor = 1.2

// OnLost is what an Elector does after it has lost the Lease.
type OnLost string

const (
	// StandBy continues as a standby, which can be elected again.
	StandBy OnLost = "standby"
	// Exit ends Run with ErrLeaseLost.
	Exit OnLost = "exit"
)

// Options of an Elector. Begin with DefaultOptions.
type Options struct {
	// Lock stores the holder. Required. It is called by one goroutine at a time. It
	// must refuse to overwrite a record that it has not read, as client-go's LeaseLock does
	// by resourceVersion. No two processes may use the same identity at a time.
	Lock resourcelock.Interface
	// Ended is the identity of a process that has certainly ended, such as the former one of a
	// container that was started again: its lease is not waited for. Optional.
	Ended string
	// LeaseDuration is how long after the last renewal others respect the leader, in
	// whole seconds. They use the duration in the leader's record, not their own.
	LeaseDuration time.Duration
	// RenewDeadline is how long the leader leads after the beginning of its last
	// acknowledged renewal.
	RenewDeadline time.Duration
	// RetryPeriod is the time between two renewals, and between two reads of a
	// standby without hints. Failed renewals are retried sooner as the deadline
	// approaches.
	RetryPeriod time.Duration
	// RequestTimeout is the timeout of one call to the lock. If less than twice as
	// much remains until a deadline, half of that is used.
	RequestTimeout time.Duration
	// ReleaseTimeout is how long Run tries to release the Lease at its end. A standby
	// that is stopped during an acquisition uses half of it for the acquisition.
	ReleaseTimeout time.Duration
	// Watch hints at changes of the lock's record. It calls changed whenever the
	// record may have changed, and returns when the watch or its context has ended.
	// It is called again then. Hints may be missing or wrong: then a standby notices
	// a release at its next read, and a leader notices a change of the record at its
	// next renewal. (*LeaseWatch).Watch is one.
	Watch func(ctx context.Context, changed func()) error
	// OnLost is what follows a lost Lease.
	OnLost OnLost
	// OnNewLeader is called with the leader whenever it, or its announcement, has
	// changed. It is this process, too, and the zero Leader if none is known. It is
	// called by one goroutine, in order, and skips changes that are out of date. Run
	// waits up to a second for it, and for Watch, to return.
	OnNewLeader func(Leader)
	// Registerer registers the metrics. nil does not register them.
	Registerer prometheus.Registerer
}

// DefaultOptions returns the timing of kube components. Lock is not set.
func DefaultOptions() Options {
	return Options{
		LeaseDuration:  15 * time.Second,
		RenewDeadline:  10 * time.Second,
		RetryPeriod:    2 * time.Second,
		RequestTimeout: 2500 * time.Millisecond, // two hanging requests leave 3 s until the deadline
		ReleaseTimeout: 5 * time.Second,
		OnLost:         StandBy,
	}
}

// Validate returns all violations as one error. Each names its field.
func (o *Options) Validate() error {
	var v violations.List
	v.AddIf(o.Lock == nil, "Lock must be set")
	v.AddIf(o.Lock != nil && o.Lock.Identity() == "", "Lock must have an identity")
	// A Lease stores seconds in 32 bits.
	v.AddIf(o.LeaseDuration <= 0 || o.LeaseDuration%time.Second != 0 || o.LeaseDuration/time.Second > math.MaxInt32,
		"LeaseDuration must be a whole number of seconds, and at least 1s, got %s", o.LeaseDuration)
	v.AddIf(o.LeaseDuration <= o.RenewDeadline,
		"LeaseDuration must be greater than RenewDeadline (%s), got %s", o.RenewDeadline, o.LeaseDuration)
	v.AddIf(o.RenewDeadline <= jittered(o.RetryPeriod),
		"RenewDeadline must be greater than %.1f times RetryPeriod (%s), got %s", JitterFactor, o.RetryPeriod, o.RenewDeadline)
	v.AddIf(o.RetryPeriod <= 0, "RetryPeriod must be greater than 0, got %s", o.RetryPeriod)
	v.AddIf(o.RequestTimeout <= 0, "RequestTimeout must be greater than 0, got %s", o.RequestTimeout)
	v.AddIf(o.RequestTimeout >= o.RenewDeadline,
		"RequestTimeout must be less than RenewDeadline (%s), got %s", o.RenewDeadline, o.RequestTimeout)
	v.AddIf(o.ReleaseTimeout <= 0, "ReleaseTimeout must be greater than 0, got %s", o.ReleaseTimeout)
	v.AddIf(o.OnLost != StandBy && o.OnLost != Exit, "OnLost must be %q or %q, got %q", StandBy, Exit, o.OnLost)
	return v.Err()
}

// jittered returns the maximum of a period with jitter.
func jittered(d time.Duration) time.Duration { return time.Duration(JitterFactor * float64(d)) }
