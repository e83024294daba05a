package sink

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Options bound what a sink takes from its process and from the apiserver.
type Options struct {
	// Concurrency is the number of requests that may be in flight at once.
	Concurrency int
	// QPS and Burst bound the requests to the apiserver, per second and at
	// once. math.Inf(1) requests per second is no limit.
	QPS   float64
	Burst int
	// RequestTimeout ends a single request.
	RequestTimeout time.Duration
	// RetryBaseDelay is the wait after a first failed attempt; it doubles up to
	// RetryMaxDelay. Each wait is shortened by up to a half, at random.
	RetryBaseDelay, RetryMaxDelay time.Duration
	// RetryFor is how long a series may fail before what it owes is given up.
	RetryFor time.Duration
	// MaxPendingSeries is how many series may be owed at once; at about 4 KiB
	// each, the default holds up to 160 MiB while the apiserver is away.
	MaxPendingSeries int
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
		Concurrency:      64,
		QPS:              1000,
		Burst:            1000,
		RequestTimeout:   10 * time.Second,
		RetryBaseDelay:   50 * time.Millisecond,
		RetryMaxDelay:    10 * time.Second,
		RetryFor:         10 * time.Minute,
		MaxPendingSeries: 40_000,
		MaxIdleSeries:    16_384,
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
	positive("QPS", o.QPS > 0 && !math.IsNaN(o.QPS), o.QPS)
	positive("burst", o.Burst > 0, o.Burst)
	positive("request timeout", o.RequestTimeout > 0, o.RequestTimeout)
	positive("retry base delay", o.RetryBaseDelay > 0, o.RetryBaseDelay)
	positive("retry period", o.RetryFor > 0, o.RetryFor)
	positive("pending series", o.MaxPendingSeries > 0, o.MaxPendingSeries)
	positive("idle series", o.MaxIdleSeries > 0, o.MaxIdleSeries)
	if o.RetryMaxDelay < o.RetryBaseDelay {
		errs = append(errs, fmt.Errorf("retry max delay %v is less than the base delay %v", o.RetryMaxDelay, o.RetryBaseDelay))
	}
	return errors.Join(errs...)
}
