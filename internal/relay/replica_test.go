package relay_test

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	authenticationv1client "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/internal/relay"
	"github.com/eventd/eventd/pkg/intake"
)

const (
	peerAudience = "eventd"
	peerUser     = "system:serviceaccount:kube-system:eventd"
	peerToken    = "peer-token"
)

// replica is a server that has others beside it.
type replica struct {
	*server
	gate  *relay.Gate
	relay *relay.Relay
	// stopLeading ends the gate's Run.
	stopLeading context.CancelCauseFunc
}

type replicaOptions struct {
	leading     func() bool
	reviewer    authenticationv1client.AuthenticationV1Interface
	token       string // its file
	leaderWait  time.Duration
	gracePeriod time.Duration // of the gate
	// unreachableAfter and renewed are those of relay.Options.
	unreachableAfter time.Duration
	renewed          func() time.Time
}

func always() bool { return true }

func newReplica(t testing.TB, p *fakePipeline, o replicaOptions, settings ...setting) *replica {
	t.Helper()
	if o.leading == nil {
		o.leading = always
	}
	r := &replica{gate: relay.NewGate(o.leading, cmp.Or(o.gracePeriod, time.Hour))}
	relayed := func(in *intake.Options, s *intake.ServerOptions) {
		options := relay.DefaultOptions()
		options.Gate, options.Reviewer, options.TokenFile, options.Audience = r.gate, o.reviewer, o.token, peerAudience
		options.Registerer = in.Registerer
		options.MaxInFlight = cmp.Or(s.MaxInFlight, options.MaxInFlight)
		if o.leaderWait != 0 {
			options.LeaderWait = o.leaderWait
		}
		options.UnreachableAfter, options.LeaderRenewed = cmp.Or(o.unreachableAfter, options.UnreachableAfter), o.renewed
		var err error
		if r.relay, err = relay.New(options); err != nil {
			t.Fatal(err)
		}
		s.Forwarder = r.relay
	}
	r.server = serve(t, p, append(settings, relayed)...)
	t.Cleanup(r.relay.Close)
	return r
}

// lead opens the gate; the channel has what its Run returns.
func (r *replica) lead(t testing.TB) <-chan error {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	r.stopLeading = cancel
	ended := make(chan error, 1)
	go func() { ended <- r.gate.Run(ctx) }()
	if err := r.gate.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	return ended
}

// metric is the value of a metric, or how much a histogram has observed. The
// label, if any, is the value of the only label.
func (r *replica) metric(t testing.TB, name string, label ...string) float64 {
	t.Helper()
	families, err := r.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			if len(label) > 0 && !slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetValue() == label[0] }) {
				continue
			}
			return m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	t.Fatalf("no metric %s %v", name, label)
	return 0
}

// until waits for a condition.
func until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("waited in vain until %s", what)
		}
	}
}

// standby returns a replica whose peers are reviewed as replicas, if their token
// is peerToken.
func standby(t testing.TB, settings ...setting) *replica {
	t.Helper()
	return standbyWith(t, written(), replicaOptions{}, settings...)
}

func standbyWith(t testing.TB, p *fakePipeline, o replicaOptions, settings ...setting) *replica {
	t.Helper()
	if o.reviewer == nil {
		reviews := newReviews(t)
		o.reviewer = reviewer(t, reviews.URL)
	}
	if o.token == "" {
		o.token = tokenFile(t, peerToken)
	}
	return newReplica(t, p, o, settings...)
}

// listening is a replica, or what stands for one, that others can reach.
type listening struct {
	*httptest.Server
	connections atomic.Int32 // that were made
	open        atomic.Int32
}

func listenTLS(t testing.TB, handler http.Handler) *listening {
	t.Helper()
	return listenAt(t, "127.0.0.1:0", servingCertificate(t), handler)
}

func listenAt(t testing.TB, address string, certificate tls.Certificate, handler http.Handler) *listening {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	return listenOn(t, listener, certificate, handler)
}

func listenOn(t testing.TB, listener net.Listener, certificate tls.Certificate, handler http.Handler) *listening {
	t.Helper()
	// As an eventd's own server.
	return listenWith(t, listener, certificate, handler, &http.HTTP2Config{MaxConcurrentStreams: 100})
}

func listenWith(t testing.TB, listener net.Listener, certificate tls.Certificate, handler http.Handler, http2 *http.HTTP2Config) *listening {
	t.Helper()
	l := &listening{Server: &httptest.Server{Listener: listener, EnableHTTP2: true, Config: &http.Server{Handler: handler, HTTP2: http2}}}
	l.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
	l.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			l.connections.Add(1)
			l.open.Add(1)
		case http.StateClosed:
			l.open.Add(-1)
		}
	}
	l.StartTLS()
	t.Cleanup(func() {
		l.CloseClientConnections()
		l.Close()
	})
	return l
}

func (l *listening) address() string { return l.Listener.Addr().String() }

func (l *listening) fingerprint() string { return relay.Fingerprint(l.Certificate()) }

// leads names the leader to replicas.
func (l *listening) leads(replicas ...*replica) {
	for _, r := range replicas {
		r.relay.SetLeader(l.address(), l.fingerprint())
	}
}

func servingCertificate(t testing.TB) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "eventd"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
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

// reviews answers TokenReviews.
type reviews struct {
	*httptest.Server
	asked atomic.Int32
}

// newReviews knows one token of a replica.
func newReviews(t testing.TB) *reviews {
	t.Helper()
	return reviewing(t, func(review *authenticationv1.TokenReview) authenticationv1.TokenReviewStatus {
		if review.Spec.Token != peerToken || !slices.Contains(review.Spec.Audiences, peerAudience) {
			return authenticationv1.TokenReviewStatus{}
		}
		return authenticationv1.TokenReviewStatus{Authenticated: true, Audiences: []string{peerAudience},
			User: authenticationv1.UserInfo{Username: peerUser}}
	})
}

func reviewing(t testing.TB, say func(*authenticationv1.TokenReview) authenticationv1.TokenReviewStatus) *reviews {
	t.Helper()
	r := &reviews{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.asked.Add(1)
		var review authenticationv1.TokenReview
		if err := json.NewDecoder(req.Body).Decode(&review); err != nil {
			t.Error(err)
		}
		review.Status = say(&review)
		review.TypeMeta = metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenReview"}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(review)
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
	client, err := kubernetes.NewForConfigAndClient(config, &http.Client{Transport: transport})
	if err != nil {
		t.Fatal(err)
	}
	return client.AuthenticationV1()
}

func background(call func() answer) <-chan answer {
	out := make(chan answer, 1)
	go func() { out <- call() }()
	return out
}
