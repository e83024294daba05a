package pipeline

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/eventd/eventd/pkg/broadcaster"
	"github.com/eventd/eventd/pkg/correlator"
	"github.com/eventd/eventd/pkg/sink"
)

// Options of an assembly and its stations.
type Options struct {
	// Name tells several broadcasters of one process apart in metrics. A
	// Pipeline does not use it.
	Name string
	// QueueCapacity is how many occurrences may wait for the correlator of each
	// sink.
	QueueCapacity int
	// WhenFull is what becomes of occurrences that do not fit into the queue of
	// a sink or watcher.
	WhenFull broadcaster.Policy
	// WatcherCapacity is how many Events may wait for each watcher.
	WatcherCapacity int
	// DrainTimeout is how long a shutdown without a context, and the stop of a
	// single sink, go on writing what is owed.
	DrainTimeout time.Duration
	Correlator   correlator.Options
	Sink         sink.Options
	// Clock is what the correlator takes the time from; nil is the system's.
	// Writes that it defers wait in real time.
	Clock clock.PassiveClock
	// Registerer takes the metrics of all stations; nil leaves them
	// unregistered. It takes the place of those in the stations' options.
	Registerer prometheus.Registerer
}

// DefaultOptions returns the defaults of all stations.
func DefaultOptions() Options {
	return Options{
		QueueCapacity:   broadcaster.DefaultCapacity,
		WatcherCapacity: 1000, // as in client-go
		DrainTimeout:    5 * time.Second,
		Correlator:      correlator.DefaultOptions(),
		Sink:            sink.DefaultOptions(),
	}
}

// BroadcasterOption changes how a broadcaster is made. They have the names of
// client-go's, where client-go has them.
type BroadcasterOption func(*broadcasterConfig)

type broadcasterConfig struct {
	ctx        context.Context
	options    Options
	correlator *record.CorrelatorOptions
}

// WithContext gives the broadcaster a context, whose end shuts it down as
// Shutdown does, and from which it takes its logger.
func WithContext(ctx context.Context) BroadcasterOption {
	return func(c *broadcasterConfig) { c.ctx = ctx }
}

// WithOptions replaces DefaultOptions.
func WithOptions(o Options) BroadcasterOption {
	return func(c *broadcasterConfig) { c.options = o }
}

// WithCorrelatorOptions takes client-go's options of the correlator, all of them.
// As there, a field that is zero leaves the default.
func WithCorrelatorOptions(o record.CorrelatorOptions) BroadcasterOption {
	return func(c *broadcasterConfig) { c.correlator = &o }
}

// configure applies the options in any order.
func configure(name string, opts []BroadcasterOption) broadcasterConfig {
	c := broadcasterConfig{ctx: context.Background(), options: DefaultOptions()}
	for _, opt := range opts {
		opt(&c)
	}
	if c.options.Name == "" {
		c.options.Name = name
	}
	if c.correlator != nil {
		c.options.take(c.correlator)
	}
	return c
}

// take sets what is set in client-go's options.
func (o *Options) take(theirs *record.CorrelatorOptions) {
	ours := &o.Correlator
	if theirs.LRUCacheSize > 0 {
		ours.CacheSize = theirs.LRUCacheSize
	}
	if theirs.BurstSize > 0 {
		ours.Burst = theirs.BurstSize
	}
	if theirs.QPS > 0 {
		ours.QPS = float64(theirs.QPS)
	}
	if theirs.KeyFunc != nil {
		ours.GroupKey = theirs.KeyFunc
	}
	if theirs.MessageFunc != nil {
		ours.Message = theirs.MessageFunc
	}
	if theirs.MaxEvents > 0 {
		ours.MaxMessages = theirs.MaxEvents
	}
	if theirs.MaxIntervalInSeconds > 0 {
		ours.Interval = time.Duration(theirs.MaxIntervalInSeconds) * time.Second
	}
	if theirs.Clock != nil {
		o.Clock = theirs.Clock
	}
	if theirs.SpamKeyFunc != nil {
		ours.SubjectKey = theirs.SpamKeyFunc
	}
}
