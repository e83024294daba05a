package app

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/eventd/eventd/pkg/election"
)

// role is the role of this replica, for /readyz. It is safe for concurrent use.
type role struct {
	identity string
	// leader returns the leader, and leading whether this process leads.
	leader  func() election.Leader
	leading func() bool
	// peerReady returns why this process cannot forward requests, or nil.
	peerReady func() error
	// maxLeaderless is how long a replica without a known leader stays ready.
	maxLeaderless time.Duration

	mu    sync.Mutex
	found bool      // whether a leader was ever known
	lost  time.Time // since when none is known; zero if one is
}

// setLeader is called when the leader has changed.
func (r *role) setLeader(leader election.Leader) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if leader.Identity == "" {
		r.lost = time.Now()
		return
	}
	r.found, r.lost = true, time.Time{}
}

// check fails if this replica can neither accept nor forward requests. Clients should
// use other replicas then.
func (r *role) check(*http.Request) error {
	if err := r.peerReady(); err != nil {
		return err
	}
	switch leader := r.leader(); {
	case leader.Identity == "":
		return r.checkLeaderless()
	case leader.Identity != r.identity && (leader.Address == "" || leader.CertificateSHA256 == ""):
		return fmt.Errorf("the leader %s does not announce its address", leader.Identity)
	default:
		return nil
	}
}

// checkLeaderless fails at the start, and when no leader has been known for
// maxLeaderless. Then there should be one, and usually only this replica does not
// know it.
func (r *role) checkLeaderless() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case !r.found:
		return errors.New("no leader has been found yet")
	case !r.lost.IsZero() && time.Since(r.lost) > r.maxLeaderless:
		return fmt.Errorf("no leader has been known for %s", time.Since(r.lost).Round(time.Second))
	default:
		return nil
	}
}

// String returns the role in words.
func (r *role) String() string {
	switch leader := r.leader(); {
	case r.leading():
		return "leader"
	case leader.Identity == "" || leader.Identity == r.identity:
		return "standby, no leader is known"
	default:
		return "standby of " + leader.Identity
	}
}

func (p *process) roleName() string {
	if p.role == nil {
		return "alone"
	}
	return p.role.String()
}
