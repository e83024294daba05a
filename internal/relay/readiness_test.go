package relay_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// watched returns a replica that finds out whether it can forward.
func watched(t *testing.T, o replicaOptions) *replica {
	t.Helper()
	r := standbyWith(t, written(), o)
	ctx, cancel := context.WithCancel(t.Context())
	ended := background(func() answer {
		if err := r.relay.Run(ctx); err != nil {
			t.Error(err)
		}
		return answer{}
	})
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return r
}

func TestReplicaIsNotReadyUntilItsOwnTokenIsGood(t *testing.T) {
	for want, token := range map[string]string{
		"the file is empty":                   " \n",
		"does not accept it for the audience": "of another audience",
	} {
		t.Run(want, func(t *testing.T) {
			path := tokenFile(t, token)
			r := watched(t, replicaOptions{token: path})
			until(t, "it says so", func() bool { err := r.relay.Check(); return err != nil && strings.Contains(err.Error(), want) })
			if err := r.relay.ReviewToken(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v", err)
			}
			over, cancel := context.WithCancel(t.Context())
			cancel()
			if err := r.relay.Ready(over); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("it would stand for election: %v", err)
			}
			rotate(t, path, peerToken)
			if err := r.relay.Ready(t.Context()); err != nil {
				t.Error(err)
			}
			if err := r.relay.Check(); err != nil {
				t.Error(err)
			}
		})
	}
}

// An apiserver that is away is no reason to take a replica out of service.
func TestReplicaStaysReadyWhileNobodyCanBeAskedAboutItsToken(t *testing.T) {
	reviews := newReviews(t)
	path := tokenFile(t, peerToken)
	r := standbyWith(t, written(), replicaOptions{reviewer: reviewer(t, reviews.URL), token: path})
	if err := r.relay.ReviewToken(t.Context()); err != nil {
		t.Fatal(err)
	}
	reviews.Close()
	rotate(t, path, "another one")
	if err := r.relay.ReviewToken(t.Context()); err == nil {
		t.Error("nobody was asked")
	}
	if err := r.relay.Check(); err != nil {
		t.Error(err)
	}
}

// Nor is a client that has gone while the apiserver was asked because of it.
func TestReplicaStaysReadyWhenAReviewOfItsTokenIsNotWaitedFor(t *testing.T) {
	asked, answer := make(chan struct{}), make(chan struct{})
	reviews := reviewing(t, func(review *authenticationv1.TokenReview) authenticationv1.TokenReviewStatus {
		if review.Spec.Token != peerToken {
			close(asked)
			<-answer
		}
		return authenticationv1.TokenReviewStatus{Authenticated: true, Audiences: []string{peerAudience},
			User: authenticationv1.UserInfo{Username: peerUser}}
	})
	defer close(answer)
	path := tokenFile(t, peerToken)
	r := standbyWith(t, written(), replicaOptions{reviewer: reviewer(t, reviews.URL), token: path})
	if err := r.relay.ReviewToken(t.Context()); err != nil {
		t.Fatal(err)
	}
	rotate(t, path, "another one")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	gone := make(chan error, 1)
	go func() { gone <- r.relay.ReviewToken(ctx) }()
	<-asked
	cancel()
	if err := <-gone; err == nil {
		t.Error("nobody has answered")
	}
	if err := r.relay.Check(); err != nil {
		t.Error(err)
	}
}

// The kubelet may fail to rotate a token: a leader's name does not change by that.
func TestLeaderWhoseTokenHasExpiredKnowsItsPeers(t *testing.T) {
	var expired atomic.Bool
	reviews := reviewing(t, func(review *authenticationv1.TokenReview) authenticationv1.TokenReviewStatus {
		if review.Spec.Token != peerToken && expired.Load() || !slices.Contains(review.Spec.Audiences, peerAudience) {
			return authenticationv1.TokenReviewStatus{Error: "token has expired"}
		}
		return authenticationv1.TokenReviewStatus{Authenticated: true, Audiences: []string{peerAudience},
			User: authenticationv1.UserInfo{Username: peerUser}}
	})
	path := tokenFile(t, "the leader's")
	leader := standbyWith(t, written(), replicaOptions{reviewer: reviewer(t, reviews.URL), token: path})
	if err := leader.relay.ReviewToken(t.Context()); err != nil {
		t.Fatal(err)
	}
	other := standby(t)
	listenTLS(t, leader).leads(other)
	ended := leader.lead(t)
	defer func() {
		leader.stopLeading(nil)
		<-ended
	}()
	expired.Store(true)
	other.post(t, classic("a", 1)).want(t, 201, "")
	rotate(t, path, "expired, too") // of which nothing was said before
	other.post(t, classic("b", 1)).want(t, 201, "")
	if err := leader.relay.Check(); err == nil || !strings.Contains(err.Error(), "does not accept it") {
		t.Errorf("its token is good: %v", err)
	}
}

func TestLeaderWithoutAGoodTokenSaysThatItIsItsOwn(t *testing.T) {
	leader := standbyWith(t, written(), replicaOptions{token: tokenFile(t, "")})
	ended := leader.lead(t)
	a := leader.do(t, "POST", coreEvents, classic("a", 1), asserting(peerToken, `{"username":"a"}`)...)
	a.want(t, 503, metav1.StatusReasonServiceUnavailable)
	if message := a.status(t).Message; !strings.Contains(message, "this replica's own token is not valid: the file is empty") {
		t.Error(message)
	}
	leader.stopLeading(nil)
	<-ended
}

func TestReplicaThatTheLeaderRefusesIsNotReadyUntilItIsTaken(t *testing.T) {
	path := tokenFile(t, peerToken)
	var accepted atomic.Bool
	reviews := reviewing(t, func(review *authenticationv1.TokenReview) authenticationv1.TokenReviewStatus {
		return authenticationv1.TokenReviewStatus{Authenticated: review.Spec.Token == peerToken || accepted.Load(),
			Audiences: []string{peerAudience}, User: authenticationv1.UserInfo{Username: peerUser}}
	})
	leader := standbyWith(t, written(), replicaOptions{reviewer: reviewer(t, reviews.URL)})
	ended := leader.lead(t)
	defer func() {
		leader.stopLeading(nil)
		<-ended
	}()
	everybody := reviewing(t, func(*authenticationv1.TokenReview) authenticationv1.TokenReviewStatus {
		return authenticationv1.TokenReviewStatus{Authenticated: true, Audiences: []string{peerAudience},
			User: authenticationv1.UserInfo{Username: peerUser}}
	})
	rotate(t, path, "of somebody else")
	other := watched(t, replicaOptions{reviewer: reviewer(t, everybody.URL), token: path})
	where := listenTLS(t, leader)
	where.leads(other)
	until(t, "it says that it is not known", func() bool {
		err := other.relay.Check()
		return err != nil && strings.Contains(err.Error(), "does not accept this replica's token")
	})
	rotate(t, path, peerToken)
	until(t, "it is known, without a request", func() bool { return other.relay.Check() == nil })

	other.relay.SetLeader(where.address(), strings.Repeat("0", 64))
	until(t, "it says that the certificate is another one", func() bool {
		err := other.relay.Check()
		return err != nil && strings.Contains(err.Error(), "certificate is not the one that is announced")
	})
	a := other.post(t, classic("a", 1))
	a.want(t, 503, metav1.StatusReasonServiceUnavailable)
	if message := a.status(t).Message; !strings.Contains(message, "certificate is not the one that is announced") {
		t.Error(message)
	}
	where.leads(other)
	until(t, "it is the leader again", func() bool { return other.relay.Check() == nil })
	other.post(t, classic("b", 1)).want(t, 201, "")
}
