package intake

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// minRepeat is when a request is sent again to a leader that could not be reached
// or did not accept, doubled each time. One that has just been elected opens its
// gate in less.
const minRepeat = 20 * time.Millisecond

// parking is a request's wait for a leader.
type parking struct {
	metrics  *relayMetrics
	patience context.Context // over when it has waited for long enough
	end      func()
	waited   time.Duration
	repeat   time.Duration
}

// park begins the time that a request may wait in all, a leader that cannot be
// reached included. Its end must be called.
func (r *Relay) park(ctx context.Context) *parking {
	p := &parking{metrics: r.metrics, repeat: minRepeat}
	patience, cancel := context.WithTimeout(ctx, r.options.Park)
	p.patience = patience
	p.end = func() {
		cancel()
		if p.waited > 0 {
			p.metrics.parkedFor.Observe(p.waited.Seconds())
		}
	}
	return p
}

// wait returns when it may be worth to try again, and is false if it never will:
// at a change of the leader or of the gate, or, if there was a leader to ask,
// after a while.
func (p *parking) wait(leaderChanged, gateChanged <-chan struct{}, why error) bool {
	begun := time.Now()
	p.metrics.parked.Inc()
	defer func() {
		p.metrics.parked.Dec()
		p.waited += time.Since(begun)
	}()
	var again <-chan time.Time
	if !errors.Is(why, errNoLeader) {
		timer := time.NewTimer(p.repeat/2 + rand.N(p.repeat/2))
		defer timer.Stop()
		again = timer.C
		p.repeat *= 2
	}
	select {
	case <-leaderChanged:
	case <-gateChanged:
	case <-again:
	case <-p.patience.Done():
	}
	return p.patience.Err() == nil
}
