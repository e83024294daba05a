package app

import (
	"context"
	"io"
	"sync/atomic"

	"github.com/eventd/eventd/internal/relay"
	"github.com/eventd/eventd/pkg/pipeline"
	"github.com/eventd/eventd/pkg/sink"
)

// defaultMaxHeldBytes is half of what a leader may have pending by default. What is held is
// encoded, and not repeated for each occurrence.
const defaultMaxHeldBytes = 96 << 20

// replication is what this replica holds of others, and others of this one. It is safe for
// concurrent use.
type replication struct {
	pipe     *pipeline.Pipeline
	relay    *relay.Relay
	holdings *sink.Holdings
	served   atomic.Int32 // open sessions with followers
}

// newHoldings returns the holdings of a replica, nil for a process that runs alone.
func (p *process) newHoldings() (*sink.Holdings, error) {
	if !p.options.LeaderElect {
		return nil, nil
	}
	return sink.NewHoldings(sink.HoldingsOptions{MaxBytes: p.options.MaxHeldBytes, Registerer: p.registry})
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
