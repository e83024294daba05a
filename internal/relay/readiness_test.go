package relay_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/eventd/eventd/pkg/election"
	"github.com/eventd/eventd/test/await"
)

// watched returns a replica that finds out whether it can forward.
func watched(t *testing.T, o options) *replica {
	t.Helper()
	r := newReplica(t, o)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.relay.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return r
}

// isNotReady reports whether the replica is not ready, for the given reason.
func (r *replica) isNotReady(reason string) bool { return isError(r.relay.Check(), reason) }

func isError(err error, text string) bool { return err != nil && strings.Contains(err.Error(), text) }

func (r *replica) wantReady(t *testing.T) {
	t.Helper()
	if err := r.relay.Check(); err != nil {
		t.Fatal(err)
	}
}

func TestReplicaIsNotReadyUntilItsOwnTokenIsGood(t *testing.T) {
	for want, token := range map[string]string{
		"the file is empty":                   " \n",
		"does not accept it for the audience": "of another audience",
	} {
		t.Run(want, func(t *testing.T) {
			path := tokenFile(t, token)
			r := watched(t, options{token: path})
			await.Until(t, "it says so", func() bool { return r.isNotReady(want) })
			if err := r.relay.ReviewToken(t.Context()); !isError(err, want) {
				t.Errorf("error %v", err)
			}
			over, cancel := context.WithCancel(t.Context())
			cancel()
			if err := r.relay.Ready(over); !isError(err, want) {
				t.Errorf("it would be elected: %v", err)
			}
			r.lead(t)
			a := r.Do(t, http.MethodPost, coreEvents, classic("a", 1), asserting(peerToken, `{"username":"a"}`)...)
			wantUnavailable(t, a)
			if message := a.Status(t).Message; !strings.Contains(message, "this replica's own token is not valid: ") || !strings.Contains(message, want) {
				t.Error(message)
			}
			rotate(t, path, peerToken)
			if err := r.relay.Ready(t.Context()); err != nil {
				t.Error(err)
			}
			r.wantReady(t)
		})
	}
}

// Neither an apiserver that does not answer nor a client that has gone meanwhile is a
// reason to take a replica out of service.
func TestReplicaStaysReadyWhileItsNewTokenIsNotReviewed(t *testing.T) {
	for name, hangs := range map[string]bool{"the apiserver is down": false, "the client has gone": true} {
		t.Run(name, func(t *testing.T) {
			asked, answer := make(chan struct{}), make(chan struct{})
			reviews := reviewing(t, func(review *authenticationv1.TokenReview) authenticationv1.TokenReviewStatus {
				if review.Spec.Token != peerToken {
					close(asked)
					<-answer
				}
				return asPeer(true)
			})
			defer close(answer)
			path := tokenFile(t, peerToken)
			r := newReplica(t, options{apiserver: reviews.URL, token: path})
			if err := r.relay.ReviewToken(t.Context()); err != nil {
				t.Fatal(err)
			}
			rotate(t, path, "another one")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if hangs {
				go func() {
					<-asked
					cancel()
				}()
			} else {
				reviews.Close()
			}
			if err := r.relay.ReviewToken(ctx); err == nil {
				t.Error("the token was reviewed")
			}
			r.wantReady(t)
		})
	}
}

// The kubelet may fail to rotate a token. The name of its account stays.
func TestLeaderWhoseTokenHasExpiredKnowsItsPeers(t *testing.T) {
	var expired atomic.Bool
	reviews := reviewing(t, func(review *authenticationv1.TokenReview) authenticationv1.TokenReviewStatus {
		if review.Spec.Token != peerToken && expired.Load() || !slices.Contains(review.Spec.Audiences, peerAudience) {
			return authenticationv1.TokenReviewStatus{Error: "token has expired"}
		}
		return asPeer(true)
	})
	path := tokenFile(t, "the leader's")
	leader, other, _ := pair(t, options{apiserver: reviews.URL, token: path}, options{})
	if err := leader.relay.ReviewToken(t.Context()); err != nil {
		t.Fatal(err)
	}
	expired.Store(true)
	other.Post(t, classic("a", 1)).Want(t, 201, "")
	rotate(t, path, "expired, too") // which was not reviewed before
	other.Post(t, classic("b", 1)).Want(t, 201, "")
	if err := leader.relay.Check(); !isError(err, "does not accept it") {
		t.Errorf("its token is good: %v", err)
	}
}

func TestReplicaThatTheLeaderRefusesIsNotReadyUntilItIsAccepted(t *testing.T) {
	everybody := reviewing(t, func(*authenticationv1.TokenReview) authenticationv1.TokenReviewStatus { return asPeer(true) })
	path := tokenFile(t, "peer-taken") // as long as the one that follows
	leader := newReplica(t, options{})
	leader.lead(t)
	other := watched(t, options{apiserver: everybody.URL, token: path})
	where := listen(t, leader)
	where.leads(other)
	await.Until(t, "it says that it is not known", func() bool {
		return other.isNotReady("does not accept this replica's token")
	})
	rotate(t, path, peerToken)
	await.Until(t, "it is known, without a request", func() bool { return other.relay.Check() == nil })

	const another = "certificate is not the one that is announced"
	other.relay.SetLeader(election.Announcement{Address: where.address(), CertificateSHA256: strings.Repeat("0", 64)})
	await.Until(t, "it says that the certificate is another one", func() bool { return other.isNotReady(another) })
	a := other.Post(t, classic("a", 1))
	wantUnavailable(t, a)
	if message := a.Status(t).Message; !strings.Contains(message, another) {
		t.Error(message)
	}
	where.leads(other)
	await.Until(t, "it is the leader again", func() bool { return other.relay.Check() == nil })
	other.Post(t, classic("b", 1)).Want(t, 201, "")
}
