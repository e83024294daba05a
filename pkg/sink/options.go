package sink

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/eventd/eventd/internal/violations"
	"github.com/eventd/eventd/pkg/sink/internal/replication"
)

// MaxConcurrency is the highest Concurrency: each request in flight needs a goroutine.
const MaxConcurrency = 10_000

// IdleSeriesBytes is the memory of a remembered idle series.
const IdleSeriesBytes = 384

// Options limit what a sink uses of its process and of the apiserver.
type Options struct {
	// Concurrency and MinConcurrency are the bounds of the adaptive limit of requests in
	// flight. Half of it may be used by slow namespaces, and one namespace may use three
	// quarters of what others leave. While other namespaces are answered, requests that
	// hang are not counted: up to half of the limit more are in flight. By default that is
	// 96, less than the 98 requests that an apiserver with default settings executes at once
	// for all clients in kube-system.
	Concurrency    int
	MinConcurrency int
	// SlowAnswer is the mean latency from which on the limit decreases. A request without an
	// answer for as long hangs if another namespace is answered.
	SlowAnswer time.Duration
	// NamespaceRefusedFor is how long no Event is created in a namespace after an answer
	// that it is missing or terminating. What is pending for creation is dropped.
	// Occurrences that are added meanwhile wait, unless a caller waits for the outcome.
	NamespaceRefusedFor time.Duration
	// QPS and Burst limit the rate of requests to the apiserver. math.Inf(1) is no limit.
	QPS   float64
	Burst int
	// WarningsFirst has Warnings written before other Events, whatever their namespaces are: of
	// four writes at least one is of another Event, if one waits. It is for a process that
	// writes only its own Events. Without it, namespaces and tenants take turns, and Warnings
	// come first among those of their namespace and tenant.
	WarningsFirst bool
	// RequestTimeout is the timeout of a single request.
	RequestTimeout time.Duration
	// RetryBaseDelay is the delay after the first failure. It doubles up to RetryMaxDelay.
	// Each delay is shortened by up to a half, at random.
	RetryBaseDelay, RetryMaxDelay time.Duration
	// RetryFor is how long the write of an occurrence is retried after its deadline, give
	// or take a sixteenth. It also limits a Retry-After. Time during which the apiserver is
	// unreachable does not count: RetryFor and ForbiddenFor begin again after it.
	RetryFor time.Duration
	// ForbiddenFor is how long a denial by RBAC is retried after the deadline of a write:
	// an apiserver that has just started denies everything until it has read its rules.
	ForbiddenFor time.Duration
	// MaxPendingSeries limits the pending series. One that several users report counts for
	// each of their tenants. docs/architecture.md describes how namespaces and tenants
	// share this limit and the next one.
	MaxPendingSeries int
	// MaxPendingBytes limits the memory of pending occurrences, give or take the last one.
	// Occurrences of one series and tenant share memory unless a caller waits for them.
	MaxPendingBytes int64
	// MaxIdleSeries is the number of idle series that are remembered, so that their next
	// occurrence needs one request. Each takes IdleSeriesBytes. One that several instances
	// or clients have counted takes the place of two or more.
	MaxIdleSeries int
	// Holdings are those of the process; nil is no replication. See Sink.Serve.
	Holdings *Holdings
	// Acknowledge is when an occurrence with Deferred is accepted.
	Acknowledge Acknowledgement
	// OtherReplica, if not nil, reports whether there is another replica that may be elected, though it
	// does not follow now. With AcknowledgeReplicated, a deferred occurrence then waits for a second
	// for a follower. If none holds it, it is written at once, at most every 10 s for a series, or
	// settles as dropped with the reason NotReplicated. It is called with locks held, and must return
	// at once.
	OtherReplica func() bool
	// Trail, if not nil, is told what becomes of what is pending.
	Trail Trail
	// Registerer registers the metrics; nil leaves them unregistered.
	Registerer prometheus.Registerer
}

// DefaultOptions returns the defaults of a process that writes the Events of a cluster.
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
		MaxPendingSeries:    10_000,
		MaxPendingBytes:     24 << 20,
		MaxIdleSeries:       28_000,
	}
}

// HeldBytes returns the memory for what a follower holds of a sink with these options, except for the
// occurrence by which that may exceed MaxPendingBytes.
func (o *Options) HeldBytes() int64 {
	return o.MaxPendingBytes + int64(o.MaxPendingSeries)*replication.SeriesBytes
}

// Validate returns an error that names each invalid field, or nil.
func (o *Options) Validate() error {
	var v violations.List
	const positive, notNegative = "be greater than 0", "not be negative"
	v.Require(o.Concurrency > 0, "Concurrency", positive, o.Concurrency)
	v.Require(o.Concurrency <= MaxConcurrency, "Concurrency", fmt.Sprintf("be at most %d", MaxConcurrency), o.Concurrency)
	v.Require(o.MinConcurrency > 0, "MinConcurrency", positive, o.MinConcurrency)
	v.Require(o.SlowAnswer > 0, "SlowAnswer", positive, o.SlowAnswer)
	v.Require(o.NamespaceRefusedFor >= 0, "NamespaceRefusedFor", notNegative, o.NamespaceRefusedFor)
	v.Require(o.QPS > 0, "QPS", positive, o.QPS)
	v.Require(o.Burst > 0, "Burst", positive, o.Burst)
	v.Require(o.RequestTimeout > 0, "RequestTimeout", positive, o.RequestTimeout)
	v.Require(o.RetryBaseDelay > 0, "RetryBaseDelay", positive, o.RetryBaseDelay)
	v.Require(o.RetryMaxDelay >= o.RetryBaseDelay, "RetryMaxDelay", fmt.Sprintf("be at least RetryBaseDelay (%v)", o.RetryBaseDelay), o.RetryMaxDelay)
	v.Require(o.RetryFor > 0, "RetryFor", positive, o.RetryFor)
	v.Require(o.ForbiddenFor >= 0, "ForbiddenFor", notNegative, o.ForbiddenFor)
	v.Require(o.MaxPendingSeries > 0, "MaxPendingSeries", positive, o.MaxPendingSeries)
	v.Require(o.MaxPendingBytes > 0, "MaxPendingBytes", positive, o.MaxPendingBytes)
	v.Require(o.MaxIdleSeries > 0, "MaxIdleSeries", positive, o.MaxIdleSeries)
	v.Require(o.Acknowledge <= AcknowledgeReceived, "Acknowledge", "be one of the constants", o.Acknowledge)
	v.Require(o.Acknowledge != AcknowledgeReplicated || o.Holdings != nil, "Acknowledge", "not be AcknowledgeReplicated without Holdings", o.Acknowledge)
	return v.Err()
}
