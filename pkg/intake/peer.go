package intake

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/token/cache"
	"k8s.io/apiserver/pkg/authentication/user"
	webhooktoken "k8s.io/apiserver/plugin/pkg/authenticator/token/webhook"
	authenticationv1client "k8s.io/client-go/kubernetes/typed/authentication/v1"
)

// Headers between replicas. All that begin as they do are removed from what a
// client sends before it is passed on, and from the answer that it is given.
const (
	peerHeaders = "Eventd-"
	// assertedUser is who a request was authenticated as by the replica that
	// passes it on, and what tells such a request: base64 of a JSON UserInfo of
	// authentication.k8s.io/v1, since names, groups and extra keys may have any
	// characters in them. A request that has it is not passed on again.
	assertedUser = "Eventd-Asserted-User"
	// notLeading marks the answer to a request that was passed on to a replica
	// which does not accept, and that had no effect there.
	notLeading = "Eventd-Not-Leading"
)

// What the apiserver says of a token is believed for as long as kube components
// do by default. A replica waits for the answer, and so does its client: there
// is less patience with an apiserver that is away than elsewhere.
const (
	reviewTTL     = 10 * time.Second
	reviewTimeout = 10 * time.Second
)

var reviewBackoff = wait.Backoff{Duration: 100 * time.Millisecond, Factor: 1.5, Jitter: 0.2, Steps: 3}

// peers tells replicas from everybody else: they present a token, bound to the
// audience, of the same user as that of this replica's own token.
type peers struct {
	audience authenticator.Audiences
	own      *tokenFile
	reviews  authenticator.Token
	changes  news // of what is said of the own token

	mu sync.Mutex
	// name is the one that a review of the own token gave last, and accepted is
	// that token. The name stays when the token expires, so a leader whose own
	// token has still knows its peers.
	name, accepted string
	// bad is what the last review had against the own token.
	bad error
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
		bad:      errNotReviewed,
	}, nil
}

// errAssertion is that a replica does not say whom it has authenticated. It says
// nothing against the replica's token.
var errAssertion = errors.New("malformed assertion of a user")

// or returns an authenticator that believes a replica who the caller is, and
// asks another one about every request in which nothing is asserted.
func (p *peers) or(other authenticator.Request) authenticator.Request {
	return authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
		if !PassedOn(req) {
			return other.AuthenticateRequest(req)
		}
		return p.authenticate(req)
	})
}

func (p *peers) authenticate(req *http.Request) (*authenticator.Response, bool, error) {
	if ok, err := p.include(req.Context(), bearerToken(req)); err != nil || !ok {
		return nil, false, err
	}
	asserted, err := decodeUser(req.Header[assertedUser]) // of a replica only: it may be large
	if err != nil {
		return nil, false, fmt.Errorf("%w: %w", errAssertion, err)
	}
	return &authenticator.Response{User: asserted}, true, nil
}

// include tells whether a token is that of a replica.
func (p *peers) include(ctx context.Context, token string) (bool, error) {
	if token == "" {
		return false, nil
	}
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

// ownName is this replica's own, by the review of a token that it has or has had.
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

// reviewOwn asks whose the own token is. An error is an ownTokenError if that is
// what is wrong, and not that nobody could be asked.
func (p *peers) reviewOwn(ctx context.Context) (string, error) {
	token, err := p.own.get()
	if err != nil {
		return "", p.rejected(err)
	}
	ours, ok, err := p.reviews.AuthenticateToken(authenticator.WithAudiences(ctx, p.audience), token)
	switch {
	case err != nil && undecided(err):
		return "", fmt.Errorf("reviewing this replica's own token: %w", err)
	case err != nil:
		return "", p.rejected(fmt.Errorf("the apiserver does not accept it for the audience %q: %w", p.audience[0], err))
	case !ok:
		return "", p.rejected(fmt.Errorf("the apiserver does not accept it for the audience %q", p.audience[0]))
	case ours.User.GetName() == "":
		return "", p.rejected(errors.New("the apiserver names nobody"))
	}
	p.mu.Lock()
	p.name, p.accepted, p.bad = ours.User.GetName(), token, nil
	p.mu.Unlock()
	p.changes.tell()
	return ours.User.GetName(), nil
}

func (p *peers) rejected(why error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bad = ownTokenError{why}
	return p.bad
}

// complaint is what there is against the own token.
func (p *peers) complaint() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bad
}

// lastName is this replica's own by the last review that named it, "" before.
func (p *peers) lastName() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.name
}

// errNotReviewed is against a token of which the apiserver has said nothing yet.
var errNotReviewed = errors.New("this replica's own token has not been reviewed yet")

// ownTokenError says that this replica has no token that the apiserver accepts.
// That leaves open who a caller is, whatever the reason.
type ownTokenError struct{ error }

func (e ownTokenError) Error() string {
	return "this replica's own token is not good: " + e.error.Error()
}

// PassedOn tells whether a request comes from another replica. Behind the
// authentication that is certain.
func PassedOn(req *http.Request) bool { return len(req.Header[assertedUser]) > 0 }

func encodeUser(u user.Info) (string, error) {
	info := authenticationv1.UserInfo{Username: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups()}
	for key, values := range u.GetExtra() {
		if info.Extra == nil {
			info.Extra = make(map[string]authenticationv1.ExtraValue)
		}
		info.Extra[key] = values
	}
	data, err := json.Marshal(info)
	return base64.StdEncoding.EncodeToString(data), err
}

// decodeUser reads what encodeUser has written. There must be one value, and a
// name in it.
func decodeUser(values []string) (user.Info, error) {
	if len(values) != 1 {
		return nil, fmt.Errorf("asserted %d times", len(values))
	}
	data, err := base64.StdEncoding.DecodeString(values[0])
	if err != nil {
		return nil, err
	}
	var info authenticationv1.UserInfo
	if err := json.Unmarshal(data, &info); err != nil {
		return nil, err
	}
	if info.Username == "" {
		return nil, errors.New("nobody is asserted")
	}
	asserted := &user.DefaultInfo{Name: info.Username, UID: info.UID, Groups: info.Groups}
	for key, values := range info.Extra {
		if asserted.Extra == nil {
			asserted.Extra = make(map[string][]string)
		}
		asserted.Extra[key] = values
	}
	return asserted, nil
}

func bearerToken(req *http.Request) string {
	scheme, token, _ := strings.Cut(strings.TrimSpace(req.Header.Get("Authorization")), " ")
	if !strings.EqualFold(scheme, "bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}
