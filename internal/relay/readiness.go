package relay

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/klog/v2"

	"github.com/eventd/eventd/internal/sleep"
	"github.com/eventd/eventd/pkg/election"
	"github.com/eventd/eventd/pkg/intake"
)

const (
	// tokenPeriod is between two reviews of the own token. A review is kept as long.
	tokenPeriod = reviewTTL
	// unreadyPeriod is the longest time between two reviews and two probes while the
	// replica is not ready.
	unreadyPeriod = time.Second
	// probesUntilUnreachable is how many probes fail until a leader is unreachable.
	probesUntilUnreachable = 3
)

// errUnreachable is of a leader that is alive and cannot be reached from here.
var errUnreachable = errors.New("the leader renews its lease, and does not answer this replica")

// Run keeps up to date what Check returns, until ctx is done. It reviews the own token,
// and probes the leader. These are two loops, so that an apiserver that is down delays no
// probe.
func (r *Relay) Run(ctx context.Context) error {
	var loops sync.WaitGroup
	loops.Go(func() { r.repeat(ctx, tokenPeriod, func() { _ = r.ReviewToken(ctx) }) })
	loops.Go(func() { r.repeat(ctx, r.probePeriod(), func() { r.probe(ctx) }) })
	loops.Wait()
	return nil
}

func (r *Relay) probePeriod() time.Duration {
	return r.options.UnreachableAfter / probesUntilUnreachable
}

// repeat calls a function periodically, and when the leader changes, until ctx is done.
func (r *Relay) repeat(ctx context.Context, period time.Duration, work func()) {
	for ctx.Err() == nil {
		changed := r.leaderChanges.Changed()
		work()
		wait := period
		if r.logCheck(ctx) != nil {
			wait = min(period, unreadyPeriod)
		}
		_ = sleep.Until(ctx, wait-rand.N(wait/5+1), changed)
	}
}

// logCheck logs what Check returns when the reason is another one than last time.
func (r *Relay) logCheck(ctx context.Context) error {
	err := r.Check()
	reason := ""
	switch {
	case errors.Is(err, errUnreachable):
		reason = errUnreachable.Error() // without the error of each attempt
	case err != nil:
		reason = err.Error()
	}
	r.mu.Lock()
	changed := reason != r.lastCheck && ctx.Err() == nil
	if changed {
		r.lastCheck = reason
	}
	r.mu.Unlock()
	if changed {
		klog.FromContext(ctx).Info("Whether this replica can forward requests has changed", "ready", err == nil, "reason", err)
	}
	return err
}

// Ready returns when the apiserver has accepted this replica's own token: before, it must
// not be elected. Run reviews it. An error is that of ctx.
func (r *Relay) Ready(ctx context.Context) error {
	err := r.peers.changes.Await(ctx, func() bool { return r.peers.check() == nil })
	if err != nil {
		return fmt.Errorf("%w: %w", err, r.peers.check())
	}
	return nil
}

// ReviewToken has the apiserver review this replica's own token. An error is that there
// is none, that it is not accepted, or that the review failed.
func (r *Relay) ReviewToken(ctx context.Context) error {
	_, err := r.peers.reviewOwn(ctx)
	return err
}

// Check returns at once why this replica cannot forward requests, or nil:
//
//   - its own token was not accepted by the last review;
//   - the leader has refused it, and has accepted no request since;
//   - the leader has answered nothing for Options.UnreachableAfter, and has renewed its
//     Lease meanwhile.
//
// An apiserver that does not answer is no reason, and neither is a leader that has
// stopped renewing: it is about to be replaced.
func (r *Relay) Check() error {
	if err := r.peers.check(); err != nil {
		return err
	}
	if leader := r.connections(); leader != nil {
		return leader.health.check(r.options.LeaderRenewed(), r.options.UnreachableAfter)
	}
	return nil
}

// probe finds out whether the leader answers, over the connections of requests, unless a
// request was answered a moment ago. Until the leader has accepted this replica, the
// probe is a request that it authenticates; later, one that costs it no review.
func (r *Relay) probe(ctx context.Context) {
	leader, name := r.connections(), r.peers.lastName()
	if leader == nil || name == "" || leader.health.answeredWithin(r.probePeriod()/2) {
		return
	}
	path := "/livez"
	if !leader.health.hasAccepted() {
		path = "/version"
	}
	asserted, err := intake.EncodeUser(&user.DefaultInfo{Name: name})
	if err != nil {
		return // a name can always be encoded
	}
	begun := time.Now()
	probing, cancel := context.WithTimeout(ctx, r.probePeriod())
	defer cancel()
	_, err = r.send(probing, begun.Add(r.probePeriod()), &outgoing{
		url: url.URL{Path: path}, method: http.MethodGet, header: http.Header{intake.AssertedUserHeader: {asserted}},
	})
	if ctx.Err() == nil && (errors.Is(err, errNotConnected) || errors.Is(err, errLost)) {
		leader.health.notAnswered(begun, err)
	}
}

// health is what requests and probes have shown of one leader. It is safe for use by many
// goroutines.
type health struct {
	mu       sync.Mutex
	accepted bool  // this replica
	refused  error // why it refused this replica, nil if it did not
	answered time.Time
	// silentSince is when the first probe without an answer was sent, zero if the last
	// one was answered. silence is the error of the last one.
	silentSince time.Time
	silence     error
}

// update records the end of an attempt.
func (h *health) update(a *answer, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil {
		h.answered, h.silentSince, h.silence = time.Now(), time.Time{}, nil
	}
	switch {
	case errors.Is(err, election.ErrCertificate):
		h.accepted, h.refused = false, err
	case err != nil:
		// It may be gone.
	case a.code == http.StatusUnauthorized:
		h.accepted, h.refused = false, errNotKnown
	case a.withoutEffect(), a.code < 500 && a.code != http.StatusTooManyRequests:
		h.accepted, h.refused = true, nil
	}
}

// notAnswered records that a probe which was sent at the given time had no answer.
func (h *health) notAnswered(sent time.Time, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if sent.Before(h.answered) {
		return
	}
	if h.silentSince.IsZero() {
		h.silentSince = sent
	}
	h.silence = err
}

// check returns an error for a leader that has refused this replica, or that was silent
// for too long before it last renewed its Lease.
func (h *health) check(renewed time.Time, tooLong time.Duration) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.refused != nil:
		return h.refused
	case !h.silentSince.IsZero() && renewed.Sub(h.silentSince) >= tooLong:
		return fmt.Errorf("%w since %s: %w", errUnreachable, h.silentSince.UTC().Format(time.RFC3339), h.silence)
	default:
		return nil
	}
}

func (h *health) hasAccepted() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.accepted
}

func (h *health) answeredWithin(d time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.accepted && time.Since(h.answered) < d
}
