package relay_test

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/eventd/eventd/test/await"
)

// reviewTimeout is how long an apiserver may take that reviews nothing.
const reviewTimeout = 10 * time.Second

// probed is a leader that can be broken, and a replica that probes it.
type probed struct {
	leader, other *replica
	where         *listening
	silent        chan struct{} // closed: nothing that the leader writes arrives
	hangs         atomic.Bool   // no request is answered
	token         string        // file of the other's
	reviewsHang   chan struct{} // closed: the apiserver reviews nothing any more

	mu    sync.Mutex
	paths []string // that were asked for
}

func newProbed(t *testing.T, leads, probes options) *probed {
	t.Helper()
	p := &probed{leader: newReplica(t, leads), token: tokenFile(t, peerToken), silent: make(chan struct{}), reviewsHang: make(chan struct{})}
	p.leader.lead(t)
	p.where = listen(t, http.HandlerFunc(p.serve), mutedAt(p.silent))
	over := t.Context().Done()
	reviews := reviewing(t, func(*authenticationv1.TokenReview) authenticationv1.TokenReviewStatus {
		select {
		case <-p.reviewsHang:
			<-over
		default:
		}
		return asPeer(true)
	})
	probes.token, probes.apiserver, probes.unreachableAfter = p.token, reviews.URL, 300*time.Millisecond
	p.other = watched(t, probes)
	p.where.leads(p.other)
	await.Until(t, "the leader has accepted it", func() bool { return slices.Contains(p.asked(), "/livez") })
	return p
}

func (p *probed) serve(w http.ResponseWriter, req *http.Request) {
	p.mu.Lock()
	p.paths = append(p.paths, req.URL.Path)
	p.mu.Unlock()
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

func (p *probed) awaitUnreachable(t *testing.T) {
	t.Helper()
	await.Until(t, "it says that the leader does not answer", func() bool {
		if n := p.other.relay.InFlight(); n > 1 {
			t.Errorf("%d probes at once", n)
		}
		return p.other.isNotReady("does not answer this replica")
	})
}

// refuse has the leader's address refuse connections.
func (p *probed) refuse() {
	_ = p.where.Listener.Close()
	p.where.CloseClientConnections()
}

func TestReplicaThatCannotReachALeaderThatRenewsIsNotReadyUntilItCan(t *testing.T) {
	for name, breaks := range map[string]func(*testing.T, *probed){
		"packets are dropped":       func(_ *testing.T, p *probed) { close(p.silent) },
		"requests are not answered": func(_ *testing.T, p *probed) { p.hangs.Store(true) },
		"connections are refused, and the apiserver hangs": func(t *testing.T, p *probed) {
			close(p.reviewsHang)
			rotate(t, p.token, "another one")
			p.refuse()
		},
		"handshakes are not answered": func(t *testing.T, p *probed) {
			p.refuse()
			p.where.Listener = listenTCP(t, p.where.address())
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProbed(t, options{}, options{})
			await.Until(t, "it is ready", func() bool { return p.other.relay.Check() == nil })
			breaks(t, p)
			begun := time.Now()
			p.awaitUnreachable(t)
			if took := time.Since(begun); took > reviewTimeout {
				t.Errorf("it took %s", took)
			}
			over, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			if err := p.other.relay.Ready(over); err != nil {
				t.Errorf("it would not be elected: %v", err)
			}
			p.refuse()
			listen(t, p.leader, at(t, p.where.address()))
			await.Until(t, "it is ready again", func() bool { return p.other.relay.Check() == nil })
		})
	}
}

// The Lease decides who leads next, so a standby is not at fault.
func TestReplicaStaysReadyWhileTheLeaderDoesNotRenew(t *testing.T) {
	var renewed atomic.Pointer[time.Time]
	renew := func() {
		now := time.Now()
		renewed.Store(&now)
	}
	renew()
	p := newProbed(t, options{}, options{renewed: func() time.Time { return *renewed.Load() }})
	p.hangs.Store(true)
	before := len(p.asked())
	await.Until(t, "many probes had no answer", func() bool {
		p.other.wantReady(t)
		return len(p.asked()) > before+10
	})
	renew()
	p.awaitUnreachable(t)
}

func TestProbesCostTheLeaderNoReviews(t *testing.T) {
	var reviews atomic.Int32
	p := newProbed(t, options{set: authorized(func(authorizer.Attributes) (authorizer.Decision, string, error) {
		reviews.Add(1)
		return authorizer.DecisionAllow, "", nil
	})}, options{})
	await.Until(t, "there were many probes", func() bool { return len(p.asked()) > 20 })
	paths := p.asked()
	first := slices.Index(paths, "/livez") // 1, or more if an answer was late
	if asked := slices.Compact(paths); !slices.Equal(asked, []string{"/version", "/livez"}) {
		t.Errorf("asked for %v", asked)
	}
	if got := int(reviews.Load()); got < 1 || got > first {
		t.Errorf("authorized %d times, for %d requests", got, first)
	}
}
