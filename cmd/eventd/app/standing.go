package app

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/eventd/eventd/pkg/election"
)

// standing is what this replica is among the others, for /readyz. It is safe for concurrent use.
type standing struct {
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
func (s *standing) setLeader(leader election.Leader) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if leader.Identity == "" {
		s.lost = time.Now()
		return
	}
	s.found, s.lost = true, time.Time{}
}

// check fails if this replica can neither accept nor forward requests. Clients should
// use other replicas then.
func (s *standing) check(*http.Request) error {
	if err := s.peerReady(); err != nil {
		return err
	}
	switch leader := s.leader(); {
	case leader.Identity == "":
		return s.checkLeaderless()
	case leader.Identity != s.identity && !leader.Complete():
		return fmt.Errorf("the leader %s does not announce its address", leader.Identity)
	default:
		return nil
	}
}

// checkLeaderless fails at the start, and when no leader has been known for
// maxLeaderless. Then there should be one, and usually only this replica does not
// know it.
func (s *standing) checkLeaderless() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.found:
		return errors.New("no leader has been found yet")
	case !s.lost.IsZero() && time.Since(s.lost) > s.maxLeaderless:
		return fmt.Errorf("no leader has been known for %s", time.Since(s.lost).Round(time.Second))
	default:
		return nil
	}
}

// String returns the standing in words.
func (s *standing) String() string {
	switch leader := s.leader(); {
	case s.leading():
		return "leader"
	case leader.Identity == "" || leader.Identity == s.identity:
		return "standby, no leader is known"
	default:
		return "standby of " + leader.Identity
	}
}

func (p *process) standingName() string {
	if p.standing == nil {
		return "alone"
	}
	return p.standing.String()
}
