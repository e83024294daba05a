package relay

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/eventd/eventd/internal/notify"
	"github.com/eventd/eventd/internal/ratelimitedlog"
	"github.com/eventd/eventd/pkg/election"
	"github.com/eventd/eventd/pkg/intake"
)

// Relay has the leader handle every request that would be recorded: this process if the
// gate admits it, or else the replica that SetLeader has named. It implements
// intake.Forwarder, and is safe for use by many goroutines. Close closes its connections.
type Relay struct {
	options       Options
	token         *tokenFile
	peers         *peers
	metrics       *metrics
	leaderChanges notify.Notifier
	leaderless    leaderless

	mu        sync.Mutex
	leader    *connections // nil if there is none to forward to
	queries   *connections // to the same one, nil before the first query
	closed    bool
	lastCheck string // what was logged of Check last

	// errorLog limits lines by reason of a failure, which concerns every request.
	errorLog *ratelimitedlog.Limiter
}

var _ intake.Forwarder = &Relay{}

// New returns a relay that knows no leader. It fails if a metric cannot be registered.
func New(o Options) (*Relay, error) {
	if o.LeaderRenewed == nil {
		o.LeaderRenewed = time.Now
	}
	r := &Relay{options: o, token: &tokenFile{path: o.TokenFile}, errorLog: ratelimitedlog.New(ratelimitedlog.Interval)}
	var err error
	if r.peers, err = newPeers(o.Reviewer, o.Audience, r.token); err != nil {
		return nil, fmt.Errorf("relay: %w", err)
	}
	if r.metrics, err = newMetrics(o.Registerer); err != nil {
		return nil, fmt.Errorf("relay: %w", err)
	}
	return r, nil
}

// SetLeader passes what the leader announces. It is zero if no leader is known, or if it is
// this process. It must be called at every change, and does not block.
func (r *Relay) SetLeader(server election.Announcement) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || r.leader != nil && r.leader.server == server {
		return
	}
	r.dropLeader()
	if server.Complete() {
		r.leader = newConnections(server, (r.options.MaxInFlight+streams-1)/streams, &health{})
	}
	r.leaderChanges.Notify()
}

// AwaitLeader returns when SetLeader has named a replica to forward to; an error is that
// of ctx.
func (r *Relay) AwaitLeader(ctx context.Context) error {
	return r.leaderChanges.Await(ctx, func() bool { return r.connections() != nil })
}

func (r *Relay) dropLeader() {
	if r.leader != nil {
		r.leader.retire()
		r.leader = nil
	}
	r.dropQueries()
}

// Close ends forwarding, and closes the connections to the leader. Connections with
// requests in flight close with the last response. It is for the end of the server, when
// there are none.
func (r *Relay) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dropLeader()
	r.closed = true
	r.leaderChanges.Notify()
}

// connections returns those to the leader, nil if there is none to forward to.
func (r *Relay) connections() *connections {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.leader
}

// acquire returns connections for one request, nil if there is no leader to forward to.
// The caller calls release.
func (r *Relay) acquire() *connections {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.leader == nil {
		return nil
	}
	if !r.leader.acquire() {
		former := r.leader
		r.leader = newConnections(former.server, former.limit, former.health)
		former.retire()
		r.leader.acquire()
	}
	return r.leader
}

// IsPeer implements intake.Forwarder.
func (r *Relay) IsPeer(ctx context.Context, token string) (bool, error) {
	return r.peers.include(ctx, token)
}

// log logs a failure that somebody may have to repair.
func (r *Relay) log(ctx context.Context, why *failure, err error) {
	if why.isLeaderless() {
		return // a handover, or the election logs it
	}
	if r.errorLog.Allow(why.reason) {
		klog.FromContext(ctx).Info("Requests are not forwarded to the leader", "reason", why.reason, "err", err)
	}
}
