package client

import "time"

// AskAgain has the delays of errors, which tests do not wait for.
var AskAgain = askAgain

// SetPatience shortens the time that a watch may be silent, and that its first connection waits for a leader.
func (c *Client) SetPatience(silence, leader time.Duration) {
	c.maxSilence, c.leaderPatience = silence, leader
}
