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
	"github.com/eventd/eventd/pkg/sink/remote"
)

// Options of a broadcaster or Pipeline and its stages. Start from DefaultOptions.
type Options struct {
	// Name is the label of a broadcaster in metrics; by default record or events. A
	// Pipeline does not use it.
	Name string
	// QueueCapacity is the capacity of each sink's queue, in occurrences of about 0.5 KiB, and of 16 KiB with the
	// longest message.
	QueueCapacity int
	// WhenFull determines what happens when the queue of a sink or watcher is full.
	WhenFull broadcaster.Policy
	// WatcherCapacity is the capacity of each watcher's queue, in Events.
	WatcherCapacity int
	// DrainTimeout limits how long a shutdown without a context, and the stop of a
	// single sink, write what is pending.
	DrainTimeout time.Duration
	Correlator   correlator.Options
	Sink         sink.Options
	// Remote are the options of a sink that reports to eventd, in place of Correlator and Sink.
	Remote remote.Options
	// Clock is the clock of the correlator; nil means the system's. Deferred writes
	// wait in real time.
	Clock clock.PassiveClock
	// Trail, if not nil, is told what becomes of each occurrence. With several sinks, it is
	// told of each of them.
	Trail Trail
	// Registerer registers the metrics of all stages; nil leaves them unregistered.
	// It replaces the Registerer in the options of the stages.
	Registerer prometheus.Registerer
}

// DefaultOptions returns the default options of all stages, for a process that reports its own
// Events. While nothing can be written, a broadcaster or Pipeline with one sink takes at most
// 16 MiB:
//
//   - 8 MiB for pending occurrences, and 5 MiB for their series;
//   - 0.1 MiB for idle series, and 1 MiB for the objects that the correlator knows.
//
// That is without what Events take while they are queued, 4 MiB if the queue is full of usual
// ones.
func DefaultOptions() Options {
	o := Options{
		QueueCapacity:   8192,
		WatcherCapacity: 1000, // as in client-go
		DrainTimeout:    5 * time.Second,
		Correlator:      correlator.DefaultOptions(),
		Sink:            sink.DefaultOptions(),
		Remote:          remote.DefaultOptions(),
	}
	o.Sink.MaxPendingBytes, o.Sink.MaxPendingSeries, o.Sink.MaxIdleSeries = 8<<20, 5120, 1536
	o.Sink.WarningsFirst = true
	return o
}

// BroadcasterOption is an option of a broadcaster. The functions that return one have the
// names of those in client-go's tools/record.
type BroadcasterOption func(*broadcasterConfig)

type broadcasterConfig struct {
	ctx        context.Context
	options    Options
	correlator *record.CorrelatorOptions
}

// WithContext sets the context of the broadcaster. Its end has the effect of Shutdown, and
// its logger is the broadcaster's.
func WithContext(ctx context.Context) BroadcasterOption {
	return func(c *broadcasterConfig) { c.ctx = ctx }
}

// WithOptions replaces DefaultOptions.
func WithOptions(o Options) BroadcasterOption {
	return func(c *broadcasterConfig) { c.options = o }
}

// WithCorrelatorOptions sets client-go's options of the correlator. As in client-go, a zero
// field means the default.
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
		c.options.apply(c.correlator)
	}
	return c
}

// apply copies the fields of client-go's options that are set.
func (o *Options) apply(from *record.CorrelatorOptions) {
	to := &o.Correlator
	if from.LRUCacheSize > 0 {
		to.CacheSize = from.LRUCacheSize
	}
	if from.BurstSize > 0 {
		to.Burst = from.BurstSize
	}
	if from.QPS > 0 {
		to.QPS = float64(from.QPS)
	}
	if from.KeyFunc != nil {
		to.GroupKey = from.KeyFunc
	}
	if from.MessageFunc != nil {
		to.Message = from.MessageFunc
	}
	if from.MaxEvents > 0 {
		to.MaxMessages = from.MaxEvents
	}
	if from.MaxIntervalInSeconds > 0 {
		to.Interval = time.Duration(from.MaxIntervalInSeconds) * time.Second
	}
	if from.Clock != nil {
		o.Clock = from.Clock
	}
	if from.SpamKeyFunc != nil {
		to.SubjectKey = from.SpamKeyFunc
	}
}
