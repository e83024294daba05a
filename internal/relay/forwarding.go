package relay

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/eventd/eventd/pkg/election"
	"github.com/eventd/eventd/pkg/intake"
)

// minRepeat is after how long a request is sent again to a leader that could not be
// reached or did not accept it. It doubles each time. A leader that was just elected
// opens its gate in less.
const minRepeat = 20 * time.Millisecond

// forwarding implements intake.Forwarding.
type forwarding struct {
	relay *Relay
	// giveUp is until when the request waits for a leader.
	giveUp time.Time
	waited time.Duration
	repeat time.Duration
}

// Begin implements intake.Forwarder.
func (r *Relay) Begin() intake.Forwarding {
	return &forwarding{relay: r, giveUp: time.Now().Add(r.options.LeaderWait), repeat: minRepeat}
}

// End implements intake.Forwarding.
func (f *forwarding) End() {
	if f.waited > 0 {
		f.relay.metrics.waitTime.Observe(f.waited.Seconds())
	}
}

// AwaitLeader implements intake.Forwarding.
func (f *forwarding) AwaitLeader(ctx context.Context) error {
	for {
		changes := f.changes()
		if f.relay.connections() != nil || f.relay.options.Gate.admits() {
			return nil
		}
		if !f.wait(ctx, changes, errNoLeader) {
			return f.relay.refusal(ctx, nil, errNoLeader)
		}
	}
}

// Handle implements intake.Forwarding. It tries to have the request handled, here or by
// the leader, until it is, or may have been, or its time is over.
func (f *forwarding) Handle(ctx context.Context, w http.ResponseWriter, r *intake.Received) error {
	if f.handleHere(w, r) {
		return nil
	}
	if intake.Forwarded(r.Request) {
		w.Header().Set(notLeadingHeader, "true")
		return intake.Unavailable(minRetryAfter, "this replica does not lead")
	}
	out, err := newOutgoing(r)
	if err != nil {
		return err
	}
	f.giveUp = f.giveUp.Add(r.BodyTime) // the client took that time
	for {
		changes := f.changes()
		if f.handleHere(w, r) {
			return nil
		}
		answer, err := f.relay.forward(ctx, f.giveUp, out)
		if err == nil {
			answer.write(w)
			return nil
		}
		if !repeatable(err) || !f.wait(ctx, changes, err) {
			return f.relay.refusal(ctx, r, err)
		}
	}
}

// handleHere has this process handle the request, if the gate admits it and the term
// lasts until the occurrence is recorded.
func (f *forwarding) handleHere(w http.ResponseWriter, r *intake.Received) bool {
	term, done, ok := f.relay.options.Gate.admit()
	if !ok {
		return false
	}
	defer done()
	if !r.Handle(w, term) {
		return false
	}
	f.relay.leaderless.end()
	return true
}

// changes are closed at a change of the leader, or of the gate. The caller gets them
// before it reads these states, so that it misses no change.
func (f *forwarding) changes() [2]<-chan struct{} {
	return [2]<-chan struct{}{f.relay.leaderChanges.Changed(), f.relay.options.Gate.changes.Changed()}
}

// wait returns true when it may be worth to try again: at a change, or, if there was a
// leader, after a while. It returns false when the time to wait is over.
func (f *forwarding) wait(ctx context.Context, changes [2]<-chan struct{}, why error) bool {
	begun := time.Now()
	f.relay.metrics.waiting.Inc()
	defer func() {
		f.relay.metrics.waiting.Dec()
		f.waited += time.Since(begun)
	}()
	ctx, cancel := context.WithDeadline(ctx, f.giveUp)
	defer cancel()
	var again <-chan time.Time
	if !errors.Is(why, errNoLeader) {
		timer := time.NewTimer(f.repeat/2 + rand.N(f.repeat/2))
		defer timer.Stop()
		again = timer.C
		f.repeat *= 2
	}
	select {
	case <-changes[0]:
	case <-changes[1]:
	case <-again:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// forward forwards a request to the leader. It waits until giveUp for a connection. Once
// the request may have been sent, it waits for the answer until the deadline of ctx.
func (r *Relay) forward(ctx context.Context, giveUp time.Time, out *outgoing) (*answer, error) {
	a, err := r.send(ctx, giveUp, out)
	switch {
	case errors.Is(err, errNotConnected):
		r.metrics.retries.WithLabelValues(errNotConnected.reason).Inc()
		return nil, err
	case err != nil:
		return nil, err
	case a.withoutEffect():
		r.metrics.retries.WithLabelValues(errNotLeading.reason).Inc()
		return nil, errNotLeading
	}
	r.leaderless.end()
	r.metrics.forwarded.WithLabelValues(strconv.Itoa(a.code)).Inc()
	if a.code == http.StatusUnauthorized {
		return nil, errNotKnown
	}
	return a, nil
}

// send makes one attempt to have the leader answer. An error is a failure.
func (r *Relay) send(ctx context.Context, giveUp time.Time, out *outgoing) (*answer, error) {
	leader := r.acquire()
	if leader == nil {
		return nil, errNoLeader
	}
	defer leader.release()
	token, err := r.token.get()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoToken, err)
	}
	req, err := out.request(ctx, leader.server.Address, token)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNotConnected, err)
	}
	a, err := leader.roundTrip(req, giveUp)
	leader.health.update(a, err)
	if err != nil && !errors.Is(err, errNotConnected) {
		return nil, fmt.Errorf("%w: %w", errLost, err)
	}
	return a, err
}

// refusal returns the response to a request that no leader has handled, or of which that
// is not known: 503, after which clients send it again.
func (r *Relay) refusal(ctx context.Context, received *intake.Received, err error) error {
	switch ctx.Err() {
	case nil:
	case context.DeadlineExceeded:
		r.metrics.refused.WithLabelValues(reasonTimeout).Inc()
		return apierrors.NewTimeoutError(fmt.Sprintf("request did not complete within requested timeout - %s", ctx.Err()), 0)
	default:
		return ctx.Err() // the client has gone
	}
	why := errLost
	errors.As(err, &why)
	r.metrics.refused.WithLabelValues(why.reason).Inc()
	r.log(ctx, why, err)
	if why == errLost && received.Unnamed() {
		return intake.NotToRepeat(why.text)
	}
	text := why.text
	for _, detail := range []error{election.ErrCertificate, errFull} {
		if errors.Is(err, detail) {
			text += ": " + detail.Error()
		}
	}
	after := minRetryAfter
	if why.isLeaderless() {
		after = r.leaderless.retryAfter()
	}
	return intake.Unavailable(after, "the event was not forwarded to the leader: "+text)
}
