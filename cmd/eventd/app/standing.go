package app

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/eventd/eventd/pkg/election"
)

// standing is what this process is among the replicas, for those who probe it.
type standing struct {
	identity string
	// leader says who leads now, and leading whether this process does.
	leader  func() election.Leader
	leading func() bool
	// fit says why this process can pass nothing on to whoever leads, or nil.
	fit func() error
	// patience is how long nobody may lead.
	patience time.Duration

	mu    sync.Mutex
	found bool      // whether anybody was ever known to lead
	lost  time.Time // since when nobody is, zero if somebody is
}

// leaderChanged is told whenever somebody else leads, or nobody.
func (s *standing) leaderChanged(leader election.Leader) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if leader.Identity == "" {
		s.lost = time.Now()
		return
	}
	s.found, s.lost = true, time.Time{}
}

// check fails in a replica that can pass nothing on: the others are to be asked
// instead.
func (s *standing) check(*http.Request) error {
	if err := s.fit(); err != nil {
		return err
	}
	switch leader := s.leader(); {
	case leader.Identity == "":
		return s.checkSearch()
	case leader.Identity != s.identity && (leader.Address == "" || leader.CertificateSHA256 == ""):
		return fmt.Errorf("%s leads, and does not say where it serves", leader.Identity)
	default:
		return nil
	}
}

// checkSearch fails at the start, and when nobody has been heard of for so long
// that there should be a leader. This replica is the only one, as a rule, that
// knows of none.
func (s *standing) checkSearch() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.found:
		return errors.New("nobody has been found to lead yet")
	case !s.lost.IsZero() && time.Since(s.lost) > s.patience:
		return fmt.Errorf("nobody has been known to lead for %s", time.Since(s.lost).Round(time.Second))
	default:
		return nil
	}
}

// role is what the process is, in words.
func (s *standing) role() string {
	switch leader := s.leader(); {
	case s.leading():
		return "leader"
	case leader.Identity == "" || leader.Identity == s.identity:
		return "standby, and nobody is known to lead"
	default:
		return "standby of " + leader.Identity
	}
}

// role is what the process is now.
func (p *process) role() string {
	if p.standing == nil {
		return "alone"
	}
	return p.standing.role()
}
