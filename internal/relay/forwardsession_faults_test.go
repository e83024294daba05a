package relay_test

import (
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/eventd/eventd/internal/relay/frame"
	"github.com/eventd/eventd/pkg/intake"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/intaketest"
)

// inFlight is a setting of a server that accepts so many requests at once.
func inFlight(n int) setting {
	return func(_ *intake.Options, o *intake.ServerOptions) { o.MaxInFlight = n }
}

func TestLeaderThatDoesNotAcceptASessionDelaysNoShutdown(t *testing.T) {
	asked, hung := make(chan struct{}), make(chan struct{})
	where := listen(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(asked)
		<-hung
	}))
	defer close(hung)
	other := newReplica(t, options{})
	where.leads(other)
	stop := other.forward(t)
	<-asked
	ended := background(func() (a answer) {
		stop()
		return a
	})
	await.Until(t, "it has ended", func() bool { return len(ended) > 0 })
}

// It would be sent a token.
func TestSessionIsNotOpenedWithAnotherServer(t *testing.T) {
	where := listen(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a request is sent") }))
	other := newReplica(t, options{})
	other.relay.SetLeader(where.address(), strings.Repeat("0", 64))
	stop := other.forward(t)
	await.Until(t, "it was tried again", func() bool { return where.connections.Load() > 1 })
	stop()
}

// Beyond it, and for all that the leader never answers, others are forwarded over HTTP/2.
func TestSessionHasALimitOfRequests(t *testing.T) {
	ping := frame.Begin(nil, frame.Ping, 0)
	frame.End(ping, 0)
	sessions := make(chan *rawSession, 10)
	other := newReplica(t, options{set: inFlight(10 * frame.MaxPending)})
	rawLeader(t, func(s *rawSession) {
		sessions <- s
		for {
			if _, _, _, err := s.frames.Next(); err != nil {
				return
			}
			s.send(ping)
		}
	}).leads(other)
	stop := other.forward(t)
	other.awaitSession(t)
	requests := posting(t, other, frame.MaxPending)
	await.Until(t, "all are in the session", func() bool { return other.relay.InSession() == frame.MaxPending })
	other.Post(t, classic("more", 1)).Want(t, 201, "")
	if n := other.relay.InSession(); n != frame.MaxPending {
		t.Errorf("%d requests are in the session", n)
	}
	stop()
	_ = (<-sessions).Close()
	for _, request := range requests {
		<-request
	}
	other.WantMetric(t, frame.MaxPending, "eventd_relay_refused_total", "lost")
	other.WantMetric(t, frame.MaxPending, sessionRequests)
}

// A frame that asserts nobody ends the session, with the requests of others.
func TestCallerWithoutANameEndsNoSession(t *testing.T) {
	_, other, _ := paired(t, options{}, options{set: intaketest.Authenticated(&user.DefaultInfo{})})
	other.Post(t, classic("a", 1)).Want(t, 500, metav1.StatusReasonInternalError)
	other.WantMetric(t, 0, sessionRequests)
}

func TestForwardingSessionsAreLimited(t *testing.T) {
	const limit = 8
	leader := newReplica(t, options{})
	where := listen(t, leader)
	leader.lead(t)
	var sessions []*rawSession
	for range limit {
		sessions = append(sessions, asPeerSession(t, where))
	}
	header := []string{"Authorization", "Bearer " + peerToken, "Eventd-Asserted-User", must(intake.EncodeUser(&user.DefaultInfo{Name: peerUser}))}
	if _, code := openRaw(t, where, header...); code != http.StatusTooManyRequests {
		t.Errorf("answered %d", code)
	}
	_ = sessions[0].Close()
	await.Until(t, "there is a place", func() bool {
		_, code := openRaw(t, where, header...)
		return code == http.StatusSwitchingProtocols
	})
}

// One request does not end the others.
func TestRequestInASessionThatPanicsIsAnswered(t *testing.T) {
	_, other, _ := paired(t, options{set: func(o *intake.Options, _ *intake.ServerOptions) {
		o.Record = func(*occurrence.Occurrence) { panic("a bug") }
	}}, options{})
	other.Post(t, classic("a", 1)).Want(t, 500, metav1.StatusReasonInternalError)
	if !other.relay.HasSession() {
		t.Error("the session has ended")
	}
}

// Probes are not in the session. Requests that are answered in it show that the leader answers.
func TestLeaderThatAnswersInASessionIsReached(t *testing.T) {
	p := newProbed(t, options{}, options{})
	p.other.forward(t)
	p.other.awaitSession(t)
	before := len(p.asked())
	await.Until(t, "it is probed", func() bool { return len(p.asked()) > before })
	p.hangs.Store(true)
	p.awaitUnreachable(t)
	await.Until(t, "it is ready", func() bool {
		p.other.Post(t, classic("a", 1))
		return p.other.relay.Check() == nil
	})
}

// It would be for the next leader.
func TestSessionThatIsAcceptedTooLateIsNotUsed(t *testing.T) {
	asked, changed := make(chan struct{}), make(chan struct{})
	ended := make(chan error, 1)
	where := listen(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(asked)
		<-changed
		s := acceptRaw(w)
		defer s.Close()
		_, _, _, err := s.frames.Next()
		ended <- err
	}))
	other := newReplica(t, options{})
	where.leads(other)
	other.forward(t)
	<-asked
	other.relay.SetLeader("", "")
	close(changed)
	if err := <-ended; err == nil {
		t.Error("it is used")
	}
	if other.relay.HasSession() {
		t.Error("there is a session")
	}
}

// Otherwise it would take a place of the former leader, until that ends.
func TestSessionEndsWhenItsLeaderLeadsNoMore(t *testing.T) {
	ended := make(chan error, 1)
	pings := 0
	other := newReplica(t, options{})
	rawLeader(t, func(s *rawSession) {
		for {
			if _, _, _, err := s.frames.Next(); err != nil {
				ended <- err
				return
			}
			pings++
		}
	}).leads(other)
	other.forward(t)
	other.awaitSession(t)
	other.relay.SetLeader("", "")
	<-ended
	if pings > 0 {
		t.Error("it ends only since nothing is answered")
	}
}
