package client

import "time"

// SetPatience shortens the time that a watch may be silent, and that its first connection waits for a leader.
func (c *Client) SetPatience(silence, leader time.Duration) {
	c.maxSilence, c.leaderPatience = silence, leader
}
