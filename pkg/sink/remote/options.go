package remote

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/eventd/eventd/internal/violations"
	"github.com/eventd/eventd/pkg/batch"
)

// Options of a Sink. Begin with DefaultOptions.
type Options struct {
	// Delay is how long an occurrence waits for others of its namespace, so that they are
	// sent together.
	Delay time.Duration
	// MaxItems and MaxBytes limit a batch: its Events, and their memory, which is more than
	// they take in the request. If eventd answers that a batch is too large, the next ones
	// have half as many Events.
	MaxItems int
	MaxBytes int64
	// Concurrency limits the requests in flight, including those that never return.
	Concurrency int
	// RequestTimeout is the timeout of a single request.
	RequestTimeout time.Duration
	// RetryBaseDelay is the delay after the first failure. It doubles up to RetryMaxDelay.
	// Each delay is shortened by up to a half, at random.
	RetryBaseDelay, RetryMaxDelay time.Duration
	// RetryFor is for how long an occurrence is sent again. It also limits a Retry-After.
	RetryFor time.Duration
	// ForbiddenFor is for how long a denial by RBAC is retried: eventd or an apiserver that has
	// just started may deny what it allows later.
	ForbiddenFor time.Duration
	// MaxPendingItems and MaxPendingBytes limit what is pending: Events, and their memory.
	MaxPendingItems int
	MaxPendingBytes int64
	// Registerer registers the metrics; nil leaves them unregistered.
	Registerer prometheus.Registerer
}

// DefaultOptions returns the options for a process that reports its own Events. What is pending
// takes 8 MiB at most, and each request in flight 1 MiB.
func DefaultOptions() Options {
	return Options{
		Delay:           100 * time.Millisecond,
		MaxItems:        500,
		MaxBytes:        1 << 20,
		Concurrency:     8,
		RequestTimeout:  10 * time.Second,
		RetryBaseDelay:  50 * time.Millisecond,
		RetryMaxDelay:   10 * time.Second,
		RetryFor:        10 * time.Minute,
		ForbiddenFor:    15 * time.Second,
		MaxPendingItems: 5120,
		MaxPendingBytes: 8 << 20,
	}
}

// Validate returns an error that names each invalid field, or nil.
func (o *Options) Validate() error {
	var v violations.List
	const positive, notNegative = "be greater than 0", "not be negative"
	v.Require(o.Delay >= 0, "Delay", notNegative, o.Delay)
	v.Require(o.MaxItems > 0, "MaxItems", positive, o.MaxItems)
	v.Require(o.MaxItems <= batch.MaxItems, "MaxItems", fmt.Sprintf("be at most %d", batch.MaxItems), o.MaxItems)
	v.Require(o.MaxBytes > 0, "MaxBytes", positive, o.MaxBytes)
	v.Require(o.Concurrency > 0, "Concurrency", positive, o.Concurrency)
	v.Require(o.RequestTimeout > 0, "RequestTimeout", positive, o.RequestTimeout)
	v.Require(o.RetryBaseDelay > 0, "RetryBaseDelay", positive, o.RetryBaseDelay)
	v.Require(o.RetryMaxDelay >= o.RetryBaseDelay, "RetryMaxDelay", fmt.Sprintf("be at least RetryBaseDelay (%v)", o.RetryBaseDelay), o.RetryMaxDelay)
	v.Require(o.RetryFor > 0, "RetryFor", positive, o.RetryFor)
	v.Require(o.ForbiddenFor >= 0, "ForbiddenFor", notNegative, o.ForbiddenFor)
	v.Require(o.MaxPendingItems > 0, "MaxPendingItems", positive, o.MaxPendingItems)
	v.Require(o.MaxPendingBytes > 0, "MaxPendingBytes", positive, o.MaxPendingBytes)
	return v.Err()
}
