package intake

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
)

const (
	// fitnessPeriod is how often a replica has its own token reviewed. What is
	// believed of a token is believed for as long.
	fitnessPeriod = reviewTTL
	// unfitPeriod is the longest time between two reviews and two probes while the
	// replica cannot pass on.
	unfitPeriod = time.Second
	// DefaultUnreachableAfter is half of the usual lease.
	DefaultUnreachableAfter = 15 * time.Second / 2
	// probesUntilUnreachable is how many probes fail until a leader counts as
	// unreachable.
	probesUntilUnreachable = 3
)

// errUnreachable is of a leader that is alive and cannot be reached from here.
var errUnreachable = errors.New("the leader renews its lease, and does not answer this replica")

// Run finds out now and then what Check tells, until ctx is over: what the
// apiserver says of this replica's own token, whether the leader answers, and
// whether it knows this replica. The two wait for each other as little as an
// apiserver that is away says of the leader.
func (r *Relay) Run(ctx context.Context) error {
	var loops sync.WaitGroup
	loops.Go(func() { r.repeat(ctx, fitnessPeriod, func() { _ = r.Own(ctx) }) })
	loops.Go(func() { r.repeat(ctx, r.probePeriod(), func() { r.probe(ctx) }) })
	loops.Wait()
	return nil
}

func (r *Relay) probePeriod() time.Duration {
	return r.options.UnreachableAfter / probesUntilUnreachable
}

// repeat does some work periodically, and at once when the leader changes, until
// ctx is over.
func (r *Relay) repeat(ctx context.Context, period time.Duration, work func()) {
	for ctx.Err() == nil {
		changed := r.changes.wait()
		work()
		wait := period
		if r.logFitness(ctx) != nil {
			wait = min(period, unfitPeriod)
		}
		timer := time.NewTimer(wait - rand.N(wait/5+1))
		select {
		case <-timer.C:
		case <-changed:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// logFitness logs what Check returns when it is about something else than before.
func (r *Relay) logFitness(ctx context.Context) error {
	err := r.Check()
	said := ""
	switch {
	case errors.Is(err, errUnreachable):
		said = errUnreachable.Error() // whatever each attempt has met with
	case err != nil:
		said = err.Error()
	}
	r.mu.Lock()
	changed := said != r.said
	if ctx.Err() == nil {
		r.said = said
	}
	r.mu.Unlock()
	if changed && ctx.Err() == nil {
		klog.FromContext(ctx).Info("Whether this replica can pass requests on has changed", "able", err == nil, "reason", err)
	}
	return err
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
// own token is not good by the last review, that the leader has refused it, until
// it has passed something on to that leader or there is another, or that the
// leader has answered nothing for RelayOptions.UnreachableAfter while it went on
// renewing its Lease. An apiserver that does not answer is no reason, and neither
// is a leader that has stopped renewing: another one is to come.
func (r *Relay) Check() error {
	if err := r.peers.complaint(); err != nil {
		return err
	}
	if leader := r.connections(); leader != nil {
		return leader.complaint(r.options.LeaderRenewed(), r.options.UnreachableAfter)
	}
	return nil
}

// probe finds out whether the leader answers, over the connections that requests
// take, unless one of these was answered a moment ago. A leader that has not said
// yet whether it knows this replica is asked something that it authenticates for,
// and any other something that costs it no review.
func (r *Relay) probe(ctx context.Context) {
	leader, name := r.connections(), r.peers.lastName()
	if leader == nil || name == "" || leader.answeredWithin(r.probePeriod()/2) {
		return
	}
	path := "/livez"
	if !leader.hasAccepted() {
		path = "/version"
	}
	asserted, err := encodeUser(&user.DefaultInfo{Name: name})
	if err != nil {
		return // a name can always be encoded
	}
	begun := time.Now()
	probing, cancel := context.WithTimeout(ctx, r.probePeriod())
	defer cancel()
	_, err = r.send(probing, probing, &passing{
		url: url.URL{Path: path}, method: http.MethodGet, header: http.Header{assertedUser: {asserted}},
	})
	if ctx.Err() == nil && (errors.Is(err, errNotConnected) || errors.Is(err, errLost)) {
		leader.notAnswered(begun, err)
	}
}

// verdict is what a leader has let a replica know of how it is taken.
type verdict struct {
	accepted bool
	refused  error
}

// silence is what there is of a leader that answers no probes.
type silence struct {
	since time.Time // when the first probe without an answer was sent
	err   error     // of the last one
}

// note keeps what an attempt says about how this replica is taken.
func (c *connections) note(answer *passed, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.answered, c.silence = time.Now(), silence{}
	}
	switch {
	case errors.Is(err, errCertificate):
		c.verdict = verdict{refused: err}
	case err != nil:
		// It may be gone.
	case answer.code == http.StatusUnauthorized:
		c.verdict = verdict{refused: errNotKnown}
	case answer.withoutEffect(), answer.code < 500 && answer.code != http.StatusTooManyRequests:
		c.verdict = verdict{accepted: true}
	}
}

// notAnswered notes that a probe which was sent at the given time had no answer.
func (c *connections) notAnswered(sent time.Time, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case sent.Before(c.answered): // it was overtaken
	case c.silence.since.IsZero():
		c.silence = silence{sent, err}
	default:
		c.silence.err = err
	}
}

// complaint is against a leader that has refused this replica, or that was silent
// for too long before it last renewed its Lease.
func (c *connections) complaint(renewed time.Time, tooLong time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.verdict.refused != nil:
		return c.verdict.refused
	case !c.silence.since.IsZero() && renewed.Sub(c.silence.since) >= tooLong:
		return fmt.Errorf("%w since %s: %w", errUnreachable, c.silence.since.UTC().Format(time.RFC3339), c.silence.err)
	default:
		return nil
	}
}

func (c *connections) hasAccepted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.verdict.accepted
}

func (c *connections) answeredWithin(d time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.verdict.accepted && time.Since(c.answered) < d
}
