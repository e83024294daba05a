package relay

import "time"

// LeaderlessSince has the relay know no leader since then.
func (r *Relay) LeaderlessSince(t time.Time) { r.leaderless.since.Store(&t) }

// ReplaceConnectionsAfter has the connections to the present leader accept so many
// requests.
func (r *Relay) ReplaceConnectionsAfter(requests int) {
	c := r.connections()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lifetime = requests
}

// InFlight returns the number of requests to the present leader, with probes.
func (r *Relay) InFlight() int {
	c := r.connections()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.inFlight
}

// HasSession reports whether requests are forwarded in a session.
func (r *Relay) HasSession() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.session != nil
}

// InSession returns the number of requests in the session that have no answer.
func (r *Relay) InSession() int {
	r.mu.Lock()
	s := r.session
	r.mu.Unlock()
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.pending)
}
