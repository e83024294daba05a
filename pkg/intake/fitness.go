package intake

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"k8s.io/klog/v2"
)

const (
	// fitnessPeriod is how often a replica finds out whether it can pass on. What
	// is believed of a token is believed for as long.
	fitnessPeriod = reviewTTL
	// unfitPeriod is how often while it cannot.
	unfitPeriod = time.Second
	// askTimeout is how long a leader may take to say whether it knows a replica.
	askTimeout = 5 * time.Second
)

// nobody is asserted when a leader is asked whether it knows this replica: what
// it then says of the request is of no interest.
var nobody = base64.StdEncoding.EncodeToString([]byte(`{"username":"system:anonymous"}`))

// Run finds out now and then what Check tells, until ctx is over: what the
// apiserver says of this replica's own token, and whether a leader knows this
// replica. A leader is asked until it has answered something once.
func (r *Relay) Run(ctx context.Context) error {
	said := ""
	for {
		changed := r.changes.wait()
		_ = r.Own(ctx)
		r.askLeader(ctx)
		period := fitnessPeriod
		now := ""
		if err := r.Check(); err != nil {
			period, now = unfitPeriod, err.Error()
		}
		if now != said && ctx.Err() == nil {
			klog.FromContext(ctx).Info("Whether this replica can pass requests on has changed", "able", now == "", "reason", now)
			said = now
		}
		timer := time.NewTimer(period)
		select {
		case <-timer.C:
		case <-changed:
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
		timer.Stop()
	}
}

// Ready returns when the apiserver has accepted this replica's own token: only
// then may it stand for election. Run finds that out. An error is that of ctx.
func (r *Relay) Ready(ctx context.Context) error {
	for {
		changed := r.peers.changes.wait()
		if r.peers.complaint() == nil {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), r.peers.complaint())
		}
	}
}

// Own has the apiserver say whose this replica's own token is. An error is that
// there is none, that it is not accepted, or that nobody could be asked.
func (r *Relay) Own(ctx context.Context) error {
	_, err := r.peers.reviewOwn(ctx)
	return err
}

// Check says, at once, why this replica cannot pass requests on, or nil: that its
// own token is not good by the last review, or that the leader has refused it,
// until it has passed something on to that leader or there is another. An
// apiserver or a leader that does not answer is no reason.
func (r *Relay) Check() error {
	if err := r.peers.complaint(); err != nil {
		return err
	}
	if leader := r.connections(); leader != nil {
		return leader.complaint()
	}
	return nil
}

// askLeader makes a request of no effect to a leader that has not been heard of.
func (r *Relay) askLeader(ctx context.Context) {
	leader := r.connections()
	if leader == nil || leader.hasAnswered() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	_, _ = r.send(ctx, ctx, &passing{
		url: url.URL{Path: "/version"}, method: http.MethodGet, header: http.Header{assertedUser: {nobody}},
	})
}

// verdict is what a leader has let a replica know of how it is taken.
type verdict struct {
	answered bool
	refused  error
}

// note keeps what an attempt says about how this replica is taken.
func (c *connections) note(answer *passed, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case errors.Is(err, errCertificate):
		c.verdict = verdict{refused: err}
	case err != nil:
		// It may be gone.
	case answer.code == http.StatusUnauthorized:
		c.verdict = verdict{refused: errNotKnown}
	case answer.withoutEffect(), answer.code < 500 && answer.code != http.StatusTooManyRequests:
		c.verdict = verdict{answered: true}
	}
}

func (c *connections) complaint() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.verdict.refused
}

func (c *connections) hasAnswered() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.verdict.answered
}
