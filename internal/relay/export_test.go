package relay

// ReplaceConnectionsAfter has the connections to the present leader accept so many
// requests.
func (r *Relay) ReplaceConnectionsAfter(requests int) {
	c := r.connections()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lifetime = requests
}
