package relay

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/token/cache"
	webhooktoken "k8s.io/apiserver/plugin/pkg/authenticator/token/webhook"
	authenticationv1client "k8s.io/client-go/kubernetes/typed/authentication/v1"

	"github.com/eventd/eventd/internal/notify"
	"github.com/eventd/eventd/pkg/intake"
)

// A review is kept as long as in kube components by default. A replica waits for it, and
// so does its client. So it is retried less than elsewhere.
const (
	reviewTTL     = 10 * time.Second
	reviewTimeout = 10 * time.Second
)

var reviewBackoff = wait.Backoff{Duration: 100 * time.Millisecond, Factor: 1.5, Jitter: 0.2, Steps: 3}

// peers recognizes other replicas: they present a token, bound to the audience, of the
// same user as that of this replica's own token.
type peers struct {
	audience authenticator.Audiences
	own      *tokenFile
	reviews  authenticator.Token
	changes  notify.Notifier // of err

	mu sync.Mutex
	// name is from the last review of the own token, and accepted is that token. The name
	// stays when the token expires, so a leader still recognizes other replicas.
	name, accepted string
	// err is why the last review did not accept the own token.
	err error
}

func newPeers(reviewer authenticationv1client.AuthenticationV1Interface, audience string, own *tokenFile) (*peers, error) {
	reviews, err := webhooktoken.NewFromInterface(reviewer, nil, reviewBackoff, reviewTimeout, webhooktoken.AuthenticatorMetrics{
		RecordRequestTotal:   authenticatorfactory.RecordRequestTotal,
		RecordRequestLatency: authenticatorfactory.RecordRequestLatency,
	})
	if err != nil {
		return nil, err
	}
	return &peers{
		audience: authenticator.Audiences{audience},
		own:      own,
		reviews:  cache.New(reviews, false, reviewTTL, reviewTTL),
		err:      errors.New("this replica's own token has not been reviewed yet"),
	}, nil
}

// include reports whether a token is that of a replica.
func (p *peers) include(ctx context.Context, token string) (bool, error) {
	theirs, ok, err := p.reviews.AuthenticateToken(authenticator.WithAudiences(ctx, p.audience), token)
	if err != nil || !ok {
		return false, err
	}
	ours, err := p.ownName(ctx)
	if err != nil {
		return false, err
	}
	return ours == theirs.User.GetName(), nil
}

// ownName is the user of this replica, by a review of its present token or a former one.
func (p *peers) ownName(ctx context.Context) (string, error) {
	token, err := p.own.get()
	p.mu.Lock()
	name, known := p.name, err == nil && token == p.accepted
	p.mu.Unlock()
	if known {
		return name, nil
	}
	reviewed, err := p.reviewOwn(ctx)
	switch {
	case err == nil:
		return reviewed, nil
	case name != "":
		return name, nil
	default:
		return "", err
	}
}

// reviewOwn reviews the own token, and returns its user. An error is an OwnTokenError if
// the token is not accepted, and another one if the review failed.
func (p *peers) reviewOwn(ctx context.Context) (string, error) {
	token, err := p.own.get()
	if err != nil {
		return "", p.reject(err)
	}
	ours, ok, err := p.reviews.AuthenticateToken(authenticator.WithAudiences(ctx, p.audience), token)
	switch {
	case err != nil && intake.Undecided(err):
		return "", fmt.Errorf("reviewing this replica's own token: %w", err)
	case err != nil:
		return "", p.reject(fmt.Errorf("the apiserver does not accept it for the audience %q: %w", p.audience[0], err))
	case !ok:
		return "", p.reject(fmt.Errorf("the apiserver does not accept it for the audience %q", p.audience[0]))
	case ours.User.GetName() == "":
		return "", p.reject(errors.New("the review has no user name"))
	}
	p.mu.Lock()
	p.name, p.accepted, p.err = ours.User.GetName(), token, nil
	p.mu.Unlock()
	p.changes.Notify()
	return ours.User.GetName(), nil
}

func (p *peers) reject(why error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = intake.OwnTokenError{Err: why}
	return p.err
}

// check returns why the own token is not accepted.
func (p *peers) check() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// lastName is the user of the last own token that was accepted, "" before.
func (p *peers) lastName() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.name
}
