package app

import (
	"cmp"
	"context"
	"io"
	"sync/atomic"

	"k8s.io/klog/v2"

	"github.com/eventd/eventd/internal/relay"
	"github.com/eventd/eventd/pkg/pipeline"
	"github.com/eventd/eventd/pkg/sink"
)

// replication is what this replica holds of others, and others of this one. It is safe for
// concurrent use.
type replication struct {
	pipe     *pipeline.Pipeline
	relay    *relay.Relay
	holdings *sink.Holdings
	served   atomic.Int32 // open sessions with followers
}

// newHoldings returns the holdings of a replica, nil for a process that runs alone.
func (p *process) newHoldings(ctx context.Context) (*sink.Holdings, error) {
	if !p.options.LeaderElect {
		return nil, nil
	}
	most, leader := p.options.HeldBytes(), p.options.leaderBytes()
	if most < leader {
		klog.FromContext(ctx).Info("--max-held-bytes is less than a leader may have pending with --max-pending-bytes and --max-pending-series: whoever fills it has all reports wait for their writes",
			"maxHeldBytes", most, "leaderBytes", leader)
	}
	return sink.NewHoldings(sink.HoldingsOptions{MaxBytes: most, Registerer: p.registry})
}

// HeldBytes returns the limit of what this replica holds of others. By default, that is the holding of
// the leader beside that of a former one.
func (o *Options) HeldBytes() int64 { return cmp.Or(o.MaxHeldBytes, 2*o.leaderBytes()) }

// leaderBytes returns the most that is held of a leader with the same options. Its last occurrence
// may exceed the limit, by labels and annotations, and by an Event that takes up to four times its
// body (internal/sizing).
func (o *Options) leaderBytes() int64 {
	return o.Pipeline.Sink.HeldBytes() + 1<<20 + 4*o.Intake.MaxBodyBytes
}

// Replicate keeps a session with the leader until ctx ends.
func (r *replication) Replicate(ctx context.Context) error {
	return r.relay.Replicate(ctx, r.holdings.Follow)
}

// Serve serves a session with a follower.
func (r *replication) Serve(ctx context.Context, follower io.ReadWriteCloser) error {
	r.served.Add(1)
	defer r.served.Add(-1)
	return r.pipe.Serve(ctx, follower)
}

// SetLeading sets whether this process writes what former leaders have left.
func (r *replication) SetLeading(leading bool) { r.pipe.SetLeading(leading) }

// AwaitFollower returns when a follower holds what is pending, when ctx ends, or at once if
// there is no follower.
func (r *replication) AwaitFollower(ctx context.Context) error {
	if r.served.Load() == 0 {
		return nil
	}
	return r.pipe.AwaitFollower(ctx)
}
