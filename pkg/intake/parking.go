package intake

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"
)

// minRepeat is when a request is sent again to a leader that could not be reached
// or did not accept, doubled each time. One that has just been elected opens its
// gate in less.
const minRepeat = 20 * time.Millisecond

// parking is a request's wait for a leader.
type parking struct {
	metrics *relayMetrics
	arrived time.Time
	allowed time.Duration // since then, to wait in all
	waited  time.Duration
	repeat  time.Duration
}

type parkingKey struct{}

// awaitLeader parks requests that would be recorded until somebody is known to
// lead, before it is asked who their callers are: while nobody leads the
// apiserver may be away, and that answer take long.
func (r *Relay) awaitLeader(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if !recording(req) || PassedOn(req) {
			next.ServeHTTP(w, req)
			return
		}
		p := &parking{metrics: r.metrics, arrived: time.Now(), allowed: r.options.Park, repeat: minRepeat}
		defer p.end()
		if r.parkedInVain(w, req, p) {
			return
		}
		next.ServeHTTP(w, req.WithContext(context.WithValue(req.Context(), parkingKey{}, p)))
	})
}

func (r *Relay) parkedInVain(w http.ResponseWriter, req *http.Request, p *parking) bool {
	ctx, cancel := early(req.Context())
	defer cancel()
	patience, cancel := p.patience(ctx)
	defer cancel()
	for {
		leaderChanged, gateChanged := r.changes.wait(), r.options.Gate.changes.wait()
		if r.connections() != nil || r.options.Gate.accepts() {
			return false
		}
		if !p.wait(patience, leaderChanged, gateChanged, errNoLeader) {
			r.refuse(w, req, ctx, nil, errNoLeader)
			return true
		}
	}
}

// parkingOf is the wait of a request that has come through awaitLeader.
func parkingOf(req *http.Request) *parking {
	p, _ := req.Context().Value(parkingKey{}).(*parking)
	return p
}

// readFor says how long the request's body took to arrive: that is the client's
// affair.
func (p *parking) readFor(d time.Duration) {
	if p != nil {
		p.allowed += d
	}
}

// patience is over when the request has waited for long enough, a leader that
// cannot be reached included, since it arrived.
func (p *parking) patience(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithDeadline(ctx, p.arrived.Add(p.allowed))
}

func (p *parking) end() {
	if p.waited > 0 {
		p.metrics.parkedFor.Observe(p.waited.Seconds())
	}
}

// wait returns when it may be worth to try again, and is false if it never will:
// at a change of the leader or of the gate, or, if there was a leader to ask,
// after a while.
func (p *parking) wait(patience context.Context, leaderChanged, gateChanged <-chan struct{}, why error) bool {
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
	case <-patience.Done():
	}
	return patience.Err() == nil
}
