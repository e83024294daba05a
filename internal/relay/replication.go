package relay

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/eventd/eventd/pkg/election"
)

const (
	// A session that has failed is opened again after minSessionPause, which doubles up to
	// maxSessionPause unless the session was open for steadySession.
	minSessionPause = 50 * time.Millisecond
	maxSessionPause = time.Second
	steadySession   = 10 * time.Second
)

// Follow is the follower's end of a session. It returns soon after ctx has ended or the
// session is closed.
type Follow func(ctx context.Context, leader io.ReadWriteCloser) error

// Replicate keeps a session with the leader that SetLeader has named, and opens it again
// while that one leads. A session with a former leader goes on until one of the two ends
// it. It returns when ctx has ended and all sessions are closed; follow is called with
// that context. It must be called once. Nothing is opened before the apiserver has accepted
// this replica's own token.
func (r *Relay) Replicate(ctx context.Context, follow Follow) error {
	f := &following{relay: r, follow: follow, leaders: make(map[election.Announcement]struct{})}
	defer f.sessions.Wait()
	_ = r.Ready(ctx) // an error is the end of ctx
	for ctx.Err() == nil {
		changed := r.leaderChanges.Changed()
		if leader, ok := f.add(); ok {
			f.sessions.Go(func() { f.run(ctx, leader) })
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
	return nil
}

// following is the sessions of this replica.
type following struct {
	relay    *Relay
	follow   Follow
	sessions sync.WaitGroup

	mu      sync.Mutex
	leaders map[election.Announcement]struct{} // for which run runs
}

// add returns the leader if run must be called for it.
func (f *following) add() (election.Announcement, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	leader, ok := f.relay.server()
	if !ok {
		return leader, false
	}
	_, known := f.leaders[leader]
	f.leaders[leader] = struct{}{}
	return leader, !known
}

// remove returns true if run may return: add returns the leader again when it leads again.
func (f *following) remove(ctx context.Context, leader election.Announcement) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.relay.leads(leader) && ctx.Err() == nil {
		return false
	}
	delete(f.leaders, leader)
	return true
}

// run keeps a session with a leader while it leads, and the last one until it ends.
func (f *following) run(ctx context.Context, leader election.Announcement) {
	pause := time.Duration(0)
	for !f.remove(ctx, leader) {
		began := time.Now()
		f.relay.logSession(ctx, leader, f.relay.openSession(ctx, leader, f.follow))
		pause = nextPause(pause, time.Since(began))
		f.relay.awaitAnother(ctx, leader, pause-rand.N(pause/5))
	}
}

// nextPause returns the time until a session is opened again that was open for a while.
func nextPause(last, lasted time.Duration) time.Duration {
	if lasted >= steadySession {
		return minSessionPause
	}
	return min(max(2*last, minSessionPause), maxSessionPause)
}

// awaitAnother returns when the leader leads no more, or after some time.
func (r *Relay) awaitAnother(ctx context.Context, leader election.Announcement, limit time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	_ = r.leaderChanges.Await(ctx, func() bool { return !r.leads(leader) })
}

// server returns where the leader serves, false if there is none to follow.
func (r *Relay) server() (election.Announcement, bool) {
	if leader := r.connections(); leader != nil {
		return leader.server, true
	}
	return election.Announcement{}, false
}

func (r *Relay) leads(server election.Announcement) bool {
	leader, ok := r.server()
	return ok && leader == server
}

// logSession logs why a session with the leader has ended.
func (r *Relay) logSession(ctx context.Context, leader election.Announcement, err error) {
	switch {
	case ctx.Err() != nil, !r.leads(leader), err == nil, errors.Is(err, io.EOF):
		klog.FromContext(ctx).V(2).Info("The session with the leader has ended", "address", leader.Address, "err", err)
	case r.errorLog.Allow("replication"):
		klog.FromContext(ctx).Info("This replica does not hold what the leader accepts", "address", leader.Address, "reason", err)
	}
}
