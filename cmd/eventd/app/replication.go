package app

import (
	"cmp"
	"context"
	"io"
	"time"

	"k8s.io/klog/v2"

	"github.com/eventd/eventd/internal/relay"
	"github.com/eventd/eventd/pkg/intake"
	"github.com/eventd/eventd/pkg/pipeline"
	"github.com/eventd/eventd/pkg/sink"
)

// replication is what this replica holds of others, and others of this one. It is safe for
// concurrent use.
type replication struct {
	pipe     *pipeline.Pipeline
	relay    *relay.Relay
	holdings *sink.Holdings
	// handoverUntil returns until when a process that ends waits for a leader that accepts what
	// this one holds of former leaders.
	handoverUntil func() time.Time

	followers *followers
}

// newHoldings returns the holdings of a replica, nil for a process that runs alone or takes no reports.
func (p *process) newHoldings(ctx context.Context) (*sink.Holdings, error) {
	if !p.options.LeaderElect || !p.options.Takes() {
		return nil, nil
	}
	most, leader := p.options.HeldBytes(), p.options.leaderBytes()
	if most < leader {
		klog.FromContext(ctx).Info("--max-held-bytes is less than a leader may have pending with --max-pending-bytes and --max-pending-series: whoever fills it has all reports wait for their writes",
			"maxHeldBytes", most, "leaderBytes", leader)
	}
	return sink.NewHoldings(sink.HoldingsOptions{MaxBytes: most, Registerer: p.registry})
}

// HeldBytes returns the limit of what this replica holds of others: by default what one leader may have pending. While
// it holds what a former one had too, the clients of the leader may have to wait for writes.
func (o *Options) HeldBytes() int64 { return cmp.Or(o.MaxHeldBytes, o.leaderBytes()) }

// leaderBytes returns the most that is held of a leader with the same options. Its last occurrence
// may exceed the limit, by labels and annotations, and by an Event that takes up to four times its
// body (test/sizing).
func (o *Options) leaderBytes() int64 {
	return o.Pipeline.Sink.HeldBytes() + 1<<20 + 4*o.Intake.MaxBodyBytes
}

// handoverUntil is within the grace period. Two lease durations are enough for an election: a replica
// that has just started waits for one before it is elected.
func (p *process) handoverUntil() time.Time {
	p.shutdown.begin()
	election := time.Now().Add(2 * p.options.LeaderElection.LeaseDuration)
	if drained := p.shutdown.drainUntil(); drained.Before(election) {
		return drained
	}
	return election
}

// Replicate keeps a session with the leader until ctx ends, and then until what this replica holds is
// handed over.
func (r *replication) Replicate(ctx context.Context) error {
	following, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	defer context.AfterFunc(ctx, func() {
		r.awaitHandover(following)
		end(context.Cause(ctx))
	})()
	return r.relay.Replicate(following, r.holdings.Follow)
}

// awaitHandover waits for the next leader: this replica may be the only one that holds what a former
// leader has accepted.
func (r *replication) awaitHandover(ctx context.Context) {
	ctx, cancel := context.WithDeadline(ctx, r.handoverUntil())
	defer cancel()
	if err := r.holdings.AwaitHandover(ctx); err != nil {
		klog.FromContext(ctx).Info("Ending before another replica has what this one holds of former leaders", "err", err)
	}
}

// Serve serves a session with a follower.
func (r *replication) Serve(ctx context.Context, follower io.ReadWriteCloser) error {
	name := intake.ReplicaOf(ctx)
	r.followers.addSessions(name, 1)
	defer r.followers.addSessions(name, -1)
	return r.pipe.Serve(ctx, follower)
}

// SetLeading sets whether this process writes what former leaders have left.
func (r *replication) SetLeading(leading bool) { r.pipe.SetLeading(leading) }

// AwaitFollower returns when a follower holds what is pending, when ctx ends, or at once if
// there is no follower.
func (r *replication) AwaitFollower(ctx context.Context) error {
	if r.followers.sessions() == 0 {
		return nil
	}
	return r.pipe.AwaitFollower(ctx)
}
