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
