package relay_test

import (
	"context"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/eventd/eventd/pkg/intake"
)

// reviewTimeout is how long an apiserver may take that reviews nothing.
const reviewTimeout = 10 * time.Second

// soon is how long a leader may be silent in these tests.
const soon = 300 * time.Millisecond

// probed is a leader that can be broken, and a replica that probes it.
type probed struct {
	leader, other *replica
	where         *listening
	silent        chan struct{} // closed: nothing that the leader writes arrives
	hangs         atomic.Bool   // no request is answered
	token         string        // file of the other's
	reviewsHang   chan struct{} // closed: the apiserver reviews nothing any more

	mu             sync.Mutex
	paths          []string // that were asked for
	inFlight, most int
}

func newProbed(t *testing.T, o replicaOptions, settings ...setting) *probed {
	t.Helper()
	p := &probed{leader: standby(t, settings...), silent: make(chan struct{}), token: tokenFile(t, peerToken), reviewsHang: make(chan struct{})}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := p.leader.lead(t)
	t.Cleanup(func() {
		p.leader.stopLeading(nil)
		<-ended
	})
	p.where = listenOn(t, muting{listener, p.silent}, servingCertificate(t), http.HandlerFunc(p.serve))
	over := t.Context().Done()
	reviews := reviewing(t, func(*authenticationv1.TokenReview) authenticationv1.TokenReviewStatus {
		select {
		case <-p.reviewsHang:
			<-over
		default:
		}
		return authenticationv1.TokenReviewStatus{Authenticated: true, Audiences: []string{peerAudience},
			User: authenticationv1.UserInfo{Username: peerUser}}
	})
	o.token, o.reviewer, o.unreachableAfter = p.token, reviewer(t, reviews.URL), soon
	p.other = watched(t, o)
	p.where.leads(p.other)
	until(t, "the leader has answered twice", func() bool { return len(p.asked()) > 1 })
	return p
}

func (p *probed) serve(w http.ResponseWriter, req *http.Request) {
	p.mu.Lock()
	p.paths = append(p.paths, req.URL.Path)
	p.inFlight++
	p.most = max(p.most, p.inFlight)
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.inFlight--
	}()
	if p.hangs.Load() {
		<-req.Context().Done()
		return
	}
	p.leader.ServeHTTP(w, req)
}

func (p *probed) asked() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.paths)
}

// unreachable reports whether the replica says so.
func (p *probed) unreachable() bool {
	err := p.other.relay.Check()
	return err != nil && strings.Contains(err.Error(), "does not answer this replica")
}

// refuse has the leader's address refuse connections.
func (p *probed) refuse() {
	_ = p.where.Listener.Close()
	p.where.CloseClientConnections()
}

func TestReplicaThatCannotReachALeaderThatRenewsIsNotReadyUntilItCan(t *testing.T) {
	for name, breaks := range map[string]func(*testing.T, *probed) (mend func()){
		"packets are dropped": func(_ *testing.T, p *probed) func() {
			close(p.silent)
			return p.refuse
		},
		"requests are not answered": func(_ *testing.T, p *probed) func() {
			p.hangs.Store(true)
			return func() {
				p.hangs.Store(false)
				p.refuse()
			}
		},
		"connections are refused": func(_ *testing.T, p *probed) func() {
			p.refuse()
			return func() {}
		},
		"connections are refused, and the apiserver hangs": func(t *testing.T, p *probed) func() {
			close(p.reviewsHang)
			rotate(t, p.token, "another one")
			p.refuse()
			return func() {}
		},
		"handshakes are not answered": func(t *testing.T, p *probed) func() {
			p.refuse()
			listener, err := net.Listen("tcp", p.where.address())
			if err != nil {
				t.Fatal(err)
			}
			return func() { _ = listener.Close() }
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProbed(t, replicaOptions{})
			until(t, "it is ready", func() bool { return p.other.relay.Check() == nil })
			mend := breaks(t, p)
			begun := time.Now()
			until(t, "it says that the leader does not answer", p.unreachable)
			if took := time.Since(begun); took > reviewTimeout {
				t.Errorf("it took %s", took)
			}
			over, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			if err := p.other.relay.Ready(over); err != nil {
				t.Errorf("it would not stand for election: %v", err)
			}
			p.mu.Lock()
			if p.most > 1 {
				t.Errorf("%d probes at once", p.most)
			}
			p.mu.Unlock()
			mend()
			listenAt(t, p.where.address(), p.where.TLS.Certificates[0], p.leader)
			until(t, "it is ready again", func() bool { return p.other.relay.Check() == nil })
		})
	}
}

// Who leads next is decided by the Lease, so it is none of a standby's faults.
func TestReplicaStaysReadyWhileTheLeaderDoesNotRenew(t *testing.T) {
	var renewed atomic.Pointer[time.Time]
	renew := func() {
		now := time.Now()
		renewed.Store(&now)
	}
	renew()
	p := newProbed(t, replicaOptions{renewed: func() time.Time { return *renewed.Load() }})
	p.hangs.Store(true)
	before := len(p.asked())
	until(t, "many probes had no answer", func() bool {
		if err := p.other.relay.Check(); err != nil {
			t.Fatal(err)
		}
		return len(p.asked()) > before+10
	})
	renew()
	until(t, "it says that the leader does not answer", p.unreachable)
}

func TestProbesCostTheLeaderNoReviews(t *testing.T) {
	var authorized atomic.Int32
	p := newProbed(t, replicaOptions{}, func(_ *intake.Options, o *intake.ServerOptions) {
		o.Authorizer = decision(func(authorizer.Attributes) (authorizer.Decision, string, error) {
			authorized.Add(1)
			return authorizer.DecisionAllow, "", nil
		})
	})
	until(t, "there were many probes", func() bool { return len(p.asked()) > 20 })
	paths := p.asked()
	if paths[0] != "/version" || slices.ContainsFunc(paths[1:], func(path string) bool { return path != "/livez" }) {
		t.Errorf("asked for %v", paths)
	}
	if got := authorized.Load(); got != 1 {
		t.Errorf("authorized %d times", got)
	}
}
