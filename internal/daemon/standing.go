package daemon

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/server/healthz"

	"github.com/eventd/eventd/pkg/election"
)

// watchdogTolerance is how long the work of a leader may go on after the Lease
// could have been another's, before the process is held to be dead. It ends in
// a moment, unless something is very wrong.
const watchdogTolerance = 10 * time.Second

// standing is what this process is among the replicas, for those who probe it.
type standing struct {
	// patience is how long nobody may lead.
	patience time.Duration

	mu     sync.Mutex
	leader election.Leader
	// lost is since when nobody is known to lead, zero if never anybody was.
	lost time.Time
}

func (s *standing) leaderChanged(leader election.Leader) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leader = leader
	if leader.Identity == "" {
		s.lost = time.Now()
	}
}

// check fails in a replica that has nobody to pass anything on to: at the start,
// or when it has not heard of a leader for so long that there should be one. It
// is the only one, as a rule: then the others are to be asked instead.
func (s *standing) check(*http.Request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.leader.Identity != "":
		return nil
	case s.lost.IsZero():
		return errors.New("nobody has been found to lead yet")
	case time.Since(s.lost) > s.patience:
		return fmt.Errorf("nobody has been known to lead for %s", time.Since(s.lost).Round(time.Second))
	default:
		return nil
	}
}

// role is what the process is, in words.
func (s *standing) role(identity string, leading bool) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case leading:
		return "leader"
	case s.leader.Identity == "" || s.leader.Identity == identity:
		return "standby, and nobody is known to lead"
	default:
		return "standby of " + s.leader.Identity
	}
}

// role is what the process is now.
func (p *process) role() string {
	if p.elector == nil {
		return "alone"
	}
	return p.standing.role(p.elector.Identity(), p.elector.Leading())
}

func (p *process) livez() []healthz.HealthChecker {
	checks := []healthz.HealthChecker{healthz.PingHealthz}
	if p.elector != nil {
		checks = append(checks, healthz.NamedCheck("leader-election", p.elector.Watchdog(watchdogTolerance)))
	}
	return checks
}

func (p *process) readyz() []healthz.HealthChecker {
	checks := []healthz.HealthChecker{healthz.PingHealthz, healthz.NewShutdownHealthz(p.ending.begun)}
	if p.elector != nil {
		checks = append(checks, healthz.NamedCheck("leader", p.standing.check))
	}
	return checks
}

// withRole adds the role to what probes are told if they ask for everything.
func withRole(next http.Handler, role func() string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		next.ServeHTTP(w, req)
		switch req.URL.Path {
		case "/livez", "/readyz", "/healthz":
			if req.URL.Query().Has("verbose") {
				_, _ = fmt.Fprintf(w, "role: %s\n", role())
			}
		}
	})
}
