package client

import (
	"context"
	"time"
)

// AskAgain has the delays of errors, which tests do not wait for.
var AskAgain = askAgain

// SetPatience shortens the time that a watch may be silent, and that its first connection waits for a leader.
func (c *Client) SetPatience(silence, leader time.Duration) {
	c.maxSilence, c.leaderPatience = silence, leader
}

// Follow runs a watch of one of a Pair, as Pair.Follow does for both.
func (c *Client) Follow(ctx context.Context, f Follow) error {
	return follow(ctx, c.Watch, c.leaderPatience, f)
}

// SetPatience is that of both Clients.
func (p *Pair) SetPatience(silence, leader time.Duration) {
	p.intake.SetPatience(silence, leader)
	p.observe.SetPatience(silence, leader)
}
