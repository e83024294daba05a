package relay_test

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	authenticationv1client "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/internal/relay"
	"github.com/eventd/eventd/pkg/intake"
	"github.com/eventd/eventd/test/intaketest"
)

func TestMain(m *testing.M) { intaketest.Main(m) }

type (
	answer  = intaketest.Answer
	setting = intaketest.Setting
)

const (
	coreEvents   = intaketest.CoreEvents
	newEvents    = intaketest.NewEvents
	newStyleJSON = intaketest.NewStyleJSON
)

var (
	written    = intaketest.Written
	kept       = intaketest.Kept
	stored     = intaketest.Stored
	authorized = intaketest.Authorized
	classic    = intaketest.Classic
	newRequest = intaketest.NewRequest
	background = intaketest.Background[answer]
)

const (
	peerAudience = "eventd"
	peerUser     = "system:serviceaccount:kube-system:eventd"
	peerToken    = "peer-token"
	// nowhere is the URL of an apiserver that is down.
	nowhere = "http://127.0.0.1:1"
)

// replica is a server that has others beside it.
type replica struct {
	*intaketest.Server
	gate        *relay.Gate
	relay       *relay.Relay
	stopLeading context.CancelFunc
	ended       chan struct{} // closed when the gate's Run has returned
}

type options struct {
	pipeline    *intaketest.Pipeline // Written, if nil
	set         setting
	leading     func() bool
	apiserver   string                                           // URL; one that accepts peerToken, if empty
	reviewer    authenticationv1client.AuthenticationV1Interface // instead of the apiserver
	token       string                                           // its file; one with peerToken, if empty
	leaderWait  time.Duration                                    // long enough for connections on a busy machine, if 0
	gracePeriod time.Duration                                    // of the gate
	// unreachableAfter and renewed are those of relay.Options.
	unreachableAfter time.Duration
	renewed          func() time.Time
}

func always() bool { return true }

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func newReplica(t testing.TB, o options) *replica {
	t.Helper()
	if o.leading == nil {
		o.leading = always
	}
	if o.pipeline == nil {
		o.pipeline = written()
	}
	if o.reviewer == nil {
		if o.apiserver == "" {
			o.apiserver = newReviews(t).URL
		}
		o.reviewer = reviewer(t, o.apiserver)
	}
	if o.token == "" {
		o.token = tokenFile(t, peerToken)
	}
	r := &replica{gate: relay.NewGate(o.leading, cmp.Or(o.gracePeriod, time.Minute))}
	r.Server = intaketest.Serve(t, o.pipeline, func(in *intake.Options, s *intake.ServerOptions) {
		if o.set != nil {
			o.set(in, s)
		}
		r.relay = must(relay.New(relay.Options{
			Identity: "me", Gate: r.gate, Reviewer: o.reviewer, TokenFile: o.token, Audience: peerAudience,
			Registerer: in.Registerer, LeaderRenewed: o.renewed, MaxInFlight: cmp.Or(s.MaxInFlight, intake.DefaultMaxInFlight),
			LeaderWait: cmp.Or(o.leaderWait, 5*time.Second), UnreachableAfter: cmp.Or(o.unreachableAfter, 15*time.Second/2),
		}))
		s.Forwarder = r.relay
	})
	t.Cleanup(r.relay.Close)
	return r
}

// alone returns a replica that reaches no other one and no apiserver.
func alone(t testing.TB, o options) *replica {
	t.Helper()
	o.apiserver, o.leaderWait = nowhere, relay.DefaultLeaderWait
	return newReplica(t, o)
}

// pair returns a leader that listens, and a standby to which it is named.
func pair(t testing.TB, leads, forwards options) (leader, other *replica, where *listening) {
	t.Helper()
	leader, other = newReplica(t, leads), newReplica(t, forwards)
	where = listen(t, leader)
	leader.lead(t)
	where.leads(other)
	return leader, other, where
}

// lead opens the gate, until the test ends at the latest.
func (r *replica) lead(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := r.gate.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	if err := r.gate.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.stopLeading, r.ended = cancel, ended
}

// resign closes the gate, and returns when all that it admitted is answered.
func (r *replica) resign() {
	r.stopLeading()
	<-r.ended
}

// wantRefused checks a response that the replica gives instead of the leader: 503, once
// for a reason.
func (r *replica) wantRefused(t testing.TB, a answer, reason string) {
	t.Helper()
	wantUnavailable(t, a)
	r.WantMetric(t, 1, "eventd_relay_refused_total", reason)
}

// wantUnavailable checks a response after which clients send the request again.
func wantUnavailable(t testing.TB, a answer) {
	t.Helper()
	a.Want(t, 503, metav1.StatusReasonServiceUnavailable)
	if _, marked := a.Header["Eventd-Not-Leading"]; marked || a.Header.Get("Retry-After") != "1" {
		t.Errorf("header %v", a.Header)
	}
}

// stopwatch returns a function that compares the time since with what it should be, in a
// bubble.
func stopwatch(t testing.TB) func(want time.Duration) {
	begun := time.Now()
	return func(want time.Duration) {
		t.Helper()
		if got := time.Since(begun); got != want {
			t.Errorf("it took %s, want %s", got, want)
		}
	}
}

func tokenFile(t testing.TB, token string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// rotate puts another token in a file's place, as the kubelet does.
func rotate(t testing.TB, path, token string) {
	t.Helper()
	if err := os.Rename(tokenFile(t, token), path); err != nil {
		t.Fatal(err)
	}
}

// reviews is an apiserver that answers TokenReviews.
type reviews struct {
	*httptest.Server
	asked atomic.Int32
}

// newReviews accepts one token.
func newReviews(t testing.TB) *reviews {
	t.Helper()
	return reviewing(t, func(r *authenticationv1.TokenReview) authenticationv1.TokenReviewStatus {
		return asPeer(r.Spec.Token == peerToken && slices.Contains(r.Spec.Audiences, peerAudience))
	})
}

// asPeer is the review of a token that is a replica's, or is not valid.
func asPeer(is bool) authenticationv1.TokenReviewStatus {
	if !is {
		return authenticationv1.TokenReviewStatus{}
	}
	return authenticationv1.TokenReviewStatus{Authenticated: true, Audiences: []string{peerAudience},
		User: authenticationv1.UserInfo{Username: peerUser}}
}

func reviewing(t testing.TB, review func(*authenticationv1.TokenReview) authenticationv1.TokenReviewStatus) *reviews {
	t.Helper()
	r := &reviews{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.asked.Add(1)
		var body authenticationv1.TokenReview
		if err := json.NewDecoder(req.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		body.Status = review(&body)
		body.TypeMeta = metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenReview"}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(body)
	}))
	t.Cleanup(r.Close)
	return r
}

// reviewer is a client of an apiserver with connections of its own.
func reviewer(t testing.TB, apiserver string) authenticationv1client.AuthenticationV1Interface {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	config := &rest.Config{Host: apiserver, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
	return must(kubernetes.NewForConfigAndClient(config, &http.Client{Transport: transport})).AuthenticationV1()
}

// leaving posts an Event for a client that goes away when leave is called.
func leaving(t testing.TB, r *replica) (gone <-chan answer, leave func()) {
	ctx, cancel := context.WithCancel(t.Context())
	return background(func() answer {
		return r.DoUntil(ctx, t, http.MethodPost, coreEvents, classic("gone", 1))
	}), cancel
}
