package sink

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// MaxConcurrency is the highest concurrency: each takes a goroutine.
const MaxConcurrency = 10_000

// Options bound what a sink takes from its process and from the apiserver.
type Options struct {
	// Concurrency is the number of requests that may be in flight at once, at
	// most. There may be as few as MinConcurrency while the apiserver shows that it
	// has too much to do, half of them for namespaces that are slow, and in one
	// namespace three quarters of what others leave. The default is less than the 98
	// requests that an apiserver with default settings executes at once for all that
	// runs in kube-system: requests that hang leave some of those to others.
	Concurrency    int
	MinConcurrency int
	// SlowAnswer is how long answers must take on average to show that.
	SlowAnswer time.Duration
	// NamespaceRefusedFor is how long no Event is created in a namespace that is
	// missing or being deleted, after an answer that says so. What was there to
	// be created is dropped, and what comes meanwhile waits, unless somebody waits
	// for it.
	NamespaceRefusedFor time.Duration
	// QPS and Burst bound the requests to the apiserver, per second and at
	// once. math.Inf(1) requests per second is no limit.
	QPS   float64
	Burst int
	// RequestTimeout ends a single request.
	RequestTimeout time.Duration
	// RetryBaseDelay is the wait after a first failed attempt; it doubles up to
	// RetryMaxDelay. Each wait is shortened by up to a half, at random.
	RetryBaseDelay, RetryMaxDelay time.Duration
	// RetryFor is how long the apiserver may not take an occurrence whose write
	// is due before it is given up, give or take a sixteenth. A Retry-After is
	// not waited for longer than this. It does not run while the apiserver cannot be
	// reached, and begins again after that; ForbiddenFor too.
	RetryFor time.Duration
	// ForbiddenFor is how long an answer that RBAC does not allow the write is
	// not believed after the write was due: an apiserver that has just started
	// gives it until it has read its rules.
	ForbiddenFor time.Duration
	// MaxPendingSeries is how many series may be owed at once. One that several
	// users report is counted for each of their tenants. See docs/architecture.md for
	// how namespaces and tenants share this limit and the next one.
	MaxPendingSeries int
	// MaxPendingBytes is how much memory pending occurrences may take, give or take
	// the last one. Those of one series and tenant that nobody waits for share what
	// they take.
	MaxPendingBytes int64
	// MaxIdleSeries is of how many quiet series the stored state is remembered,
	// so that their next occurrence takes one request. At about 1 KiB each, the
	// default holds up to 16 MiB.
	MaxIdleSeries int
	// Registerer takes the metrics; nil leaves them unregistered.
	Registerer prometheus.Registerer
}

// DefaultOptions returns the options that a daemon starts with.
func DefaultOptions() Options {
	return Options{
		Concurrency:         64,
		MinConcurrency:      8,
		SlowAnswer:          time.Second,
		NamespaceRefusedFor: time.Second,
		QPS:                 1000,
		Burst:               1000,
		RequestTimeout:      10 * time.Second,
		RetryBaseDelay:      50 * time.Millisecond,
		RetryMaxDelay:       10 * time.Second,
		RetryFor:            10 * time.Minute,
		ForbiddenFor:        15 * time.Second,
		MaxPendingSeries:    40_000,
		MaxPendingBytes:     192 << 20,
		MaxIdleSeries:       16_384,
	}
}

// Validate says what is wrong with the options, or nil.
func (o *Options) Validate() error {
	var errs []error
	positive := func(name string, ok bool, value any) {
		if !ok {
			errs = append(errs, fmt.Errorf("%s must be greater than 0, not %v", name, value))
		}
	}
	positive("concurrency", o.Concurrency > 0, o.Concurrency)
	if o.Concurrency > MaxConcurrency {
		errs = append(errs, fmt.Errorf("concurrency must be at most %d, not %d", MaxConcurrency, o.Concurrency))
	}
	positive("least concurrency", o.MinConcurrency > 0, o.MinConcurrency)
	positive("slow answer", o.SlowAnswer > 0, o.SlowAnswer)
	if o.NamespaceRefusedFor < 0 {
		errs = append(errs, fmt.Errorf("time of a namespace's refusal must not be less than 0, not %v", o.NamespaceRefusedFor))
	}
	positive("QPS", o.QPS > 0, o.QPS)
	positive("burst", o.Burst > 0, o.Burst)
	positive("request timeout", o.RequestTimeout > 0, o.RequestTimeout)
	positive("retry base delay", o.RetryBaseDelay > 0, o.RetryBaseDelay)
	positive("retry period", o.RetryFor > 0, o.RetryFor)
	if o.ForbiddenFor < 0 {
		errs = append(errs, fmt.Errorf("time of disbelief must not be less than 0, not %v", o.ForbiddenFor))
	}
	positive("pending series", o.MaxPendingSeries > 0, o.MaxPendingSeries)
	positive("pending bytes", o.MaxPendingBytes > 0, o.MaxPendingBytes)
	positive("idle series", o.MaxIdleSeries > 0, o.MaxIdleSeries)
	if o.RetryMaxDelay < o.RetryBaseDelay {
		errs = append(errs, fmt.Errorf("retry max delay %v is less than the base delay %v", o.RetryMaxDelay, o.RetryBaseDelay))
	}
	return errors.Join(errs...)
}
