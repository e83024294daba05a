package relay_test

import (
	"crypto/tls"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/pkg/election"
	"github.com/eventd/eventd/pkg/intake"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/test/await"
)

// oneConnection is a setting of a replica that has one connection to the leader.
func oneConnection(_ *intake.Options, o *intake.ServerOptions) { o.MaxInFlight = 100 }

// posting posts so many Events at once.
func posting(t *testing.T, r *replica, many int) []<-chan answer {
	t.Helper()
	requests := make([]<-chan answer, many)
	for i := range requests {
		requests[i] = background(func() answer { return r.Post(t, classic(fmt.Sprint("a", i), 1)) })
	}
	return requests
}

func wantCreated(t *testing.T, requests ...<-chan answer) {
	t.Helper()
	for _, request := range requests {
		(<-request).Want(t, 201, "")
	}
}

func TestLeaderThatCannotBeReachedIsTriedAgain(t *testing.T) {
	leader, other := newReplica(t, options{}), newReplica(t, options{leaderWait: time.Minute})
	where := listen(t, leader)
	_ = where.Listener.Close()
	where.leads(other)
	request := posting(t, other, 1)
	await.Until(t, "it was tried twice", func() bool { return other.Metric(t, "eventd_relay_retries_total", "unreachable") >= 2 })
	leader.lead(t)
	listen(t, leader, at(t, where.address()))
	wantCreated(t, request...)
}

// A host that is gone, or a process that is stopped, may have connections that nothing
// answers on.
func TestRequestsLeaveALeaderThatDoesNotShakeHands(t *testing.T) {
	leader, _, where := pair(t, options{}, options{})
	other := newReplica(t, options{leaderWait: time.Minute})
	other.relay.SetLeader(election.Announcement{Address: listenTCP(t, "127.0.0.1:0").Addr().String(), CertificateSHA256: where.fingerprint()})
	requests := posting(t, other, 10)
	gone, leave := leaving(t, other)
	await.Until(t, "all are there", func() bool { return other.Metric(t, "eventd_intake_in_flight") == 11 })
	leave()
	<-gone
	where.leads(other)
	wantCreated(t, requests...)
	leader.Pipeline.WantRecorded(t, len(requests))
}

// The former leader's process may still be there, with connections that work.
func TestConnectionsOfAFormerLeaderAreNotUsedForItsSuccessor(t *testing.T) {
	former, other, formerAt := pair(t, options{}, options{})
	other.Post(t, classic("a", 1)).Want(t, 201, "")

	_ = formerAt.Listener.Close() // its connections stay
	next := newReplica(t, options{})
	next.lead(t)
	listen(t, next, at(t, formerAt.address()), withAnotherCertificate(t)).leads(other)
	other.Post(t, classic("b", 1)).Want(t, 201, "")
	former.Pipeline.WantRecorded(t, 1)
	next.Pipeline.WantRecorded(t, 1)
	await.Until(t, "they are closed", func() bool { return formerAt.open.Load() == 0 })
}

// A leader that shuts its server down sends GOAWAY. It answers what it has begun, even
// after the next one leads, which handles what comes then.
func TestServerOfTheLeaderShutsDown(t *testing.T) {
	former, other, formerAt := pair(t, options{pipeline: kept()}, options{leaderWait: time.Minute})
	next := newReplica(t, options{})
	nextAt := listen(t, next)
	slow := posting(t, other, 1)
	o := <-former.Pipeline.Recorded

	shutDown := make(chan error, 1)
	go func() { shutDown <- formerAt.Config.Shutdown(t.Context()) }()
	later := background(func() answer { return other.Post(t, classic("later", 1)) })
	await.Until(t, "the later one is in flight at the former leader or has waited", func() bool {
		return len(former.Pipeline.Occurrences()) == 2 || other.Metric(t, "eventd_relay_retries_total", "unreachable") > 0
	})
	former.stopLeading()
	next.lead(t)
	nextAt.leads(other)
	o.Settled(stored(occurrence.Created, 1))
	wantCreated(t, slow...)
	select {
	case o := <-former.Pipeline.Recorded: // it was faster than the GOAWAY
		o.Settled(stored(occurrence.Created, 2))
	default:
	}
	wantCreated(t, later)
	if err := <-shutDown; err != nil {
		t.Error(err)
	}
	if got := len(former.Pipeline.Occurrences()) + len(next.Pipeline.Occurrences()); got != 2 {
		t.Errorf("recorded %d times", got)
	}
}

// oneStream has a leader accept one request at once on a connection.
func oneStream(s *httptest.Server) { s.Config.HTTP2.MaxConcurrentStreams = 1 }

// The leader is not unreachable then.
func TestRequestThatFindsNoSlotOnAConnectionWaitsForIt(t *testing.T) {
	leader := newReplica(t, options{pipeline: kept()})
	other := newReplica(t, options{leaderWait: time.Minute, set: func(_ *intake.Options, o *intake.ServerOptions) { o.MaxInFlight = 200 }})
	// The server may take a moment to notice that it has answered. What comes in that
	// moment is one stream too many for it, and is sent again on another connection
	// (golang/go#47635).
	var tooEarly atomic.Int32
	where := listen(t, leader, oneStream, func(s *httptest.Server) {
		s.Config.HTTP2.CountError = func(what string) {
			if strings.HasSuffix(what, "over_max_streams") {
				tooEarly.Add(1)
			}
		}
	})
	where.leads(other)
	leader.lead(t)
	first := posting(t, other, 1)
	ofFirst := <-leader.Pipeline.Recorded
	second := background(func() answer { return other.Post(t, classic("b", 1)) })
	ofSecond := <-leader.Pipeline.Recorded
	third := background(func() answer { return other.Post(t, classic("c", 1)) })
	await.Until(t, "the third is there", func() bool { return other.Metric(t, "eventd_intake_in_flight") == 3 })
	ofFirst.Settled(stored(occurrence.Created, 1))
	wantCreated(t, first...)
	(<-leader.Pipeline.Recorded).Settled(stored(occurrence.Created, 2))
	wantCreated(t, third)
	ofSecond.Settled(stored(occurrence.Created, 3))
	wantCreated(t, second)
	other.WantMetric(t, 0, "eventd_relay_retries_total", "unreachable")
	if got, more := where.connections.Load(), tooEarly.Load(); got < 2 || got > 2+more {
		t.Errorf("%d connections, and %d requests came too early", got, more)
	}
}

func TestRefusalSaysThatALeaderTakesNoMoreAtOnce(t *testing.T) {
	leader, other := newReplica(t, options{pipeline: kept()}), newReplica(t, options{leaderWait: 3 * time.Second, set: oneConnection})
	where := listen(t, leader, oneStream)
	where.leads(other)
	leader.lead(t)
	first := posting(t, other, 1)
	ofFirst := <-leader.Pipeline.Recorded
	a := other.Post(t, classic("b", 1))
	a.Want(t, 503, metav1.StatusReasonServiceUnavailable)
	if text := a.Status(t).Message; !strings.HasSuffix(text, ": all connections to it are in use") {
		t.Errorf("answered %q", text)
	}
	if got := where.connections.Load(); got != 1 {
		t.Errorf("%d connections", got)
	}
	ofFirst.Settled(stored(occurrence.Created, 1))
	wantCreated(t, first...)
}

// The review of its caller may have taken too long.
func TestRequestWhoseTimeToWaitIsOverUsesAnOpenConnection(t *testing.T) {
	_, other, _ := pair(t, options{}, options{leaderWait: 1})
	await.Until(t, "they are connected", func() bool { return other.Post(t, classic("a", 1)).Code != 503 })
	for i := range 10 {
		other.Post(t, classic(fmt.Sprint("b", i), 1)).Want(t, 201, "")
	}
}

func TestCloseOfARelayClosesItsConnections(t *testing.T) {
	_, other, where := pair(t, options{}, options{leaderWait: 2 * time.Second})
	other.relay.LeaderlessSince(time.Now().Add(-time.Minute)) // which ends now
	other.Post(t, classic("a", 1)).Want(t, 201, "")
	if got := where.open.Load(); got != 1 {
		t.Errorf("%d connections", got)
	}
	other.relay.Close()
	other.relay.Close()
	await.Until(t, "it is closed", func() bool { return where.open.Load() == 0 })
	where.leads(other) // too late
	wantUnavailable(t, other.Post(t, classic("b", 1)))
}

// For a name, the leader may have another certificate than the one that it announces.
func TestLeaderIsReachedByNameWithoutServerName(t *testing.T) {
	names := make(chan string, 10)
	other := newReplica(t, options{leaderWait: time.Minute})
	leader := newCapture(t, func(s *httptest.Server) {
		s.TLS = &tls.Config{GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			names <- hello.ServerName
			return nil, nil
		}}
	})
	other.relay.SetLeader(election.Announcement{Address: strings.Replace(leader.address(), "127.0.0.1", "localhost", 1), CertificateSHA256: leader.fingerprint()})
	other.Post(t, classic("a", 1)).Want(t, 201, "")
	if name := <-names; name != "" {
		t.Errorf("the server name is %q", name)
	}
}

// One has ids for 2^30 requests.
func TestConnectionThatHasTakenAllItsRequestsIsReplacedAndClosed(t *testing.T) {
	leader, other, where := pair(t, options{pipeline: kept()}, options{leaderWait: time.Minute, set: oneConnection})
	other.relay.ReplaceConnectionsAfter(2)
	requests := make([]<-chan answer, 3)
	recorded := make([]*occurrence.Occurrence, len(requests))
	for i := range requests {
		requests[i] = background(func() answer { return other.Post(t, classic(fmt.Sprint("a", i), 1)) })
		recorded[i] = <-leader.Pipeline.Recorded
	}
	if made, open := where.connections.Load(), where.open.Load(); made != 2 || open != 2 {
		t.Errorf("%d connections were made, and %d are open, while all three requests are in flight", made, open)
	}
	for i, request := range requests {
		recorded[i].Settled(stored(occurrence.Created, i))
		wantCreated(t, request)
	}
	await.Until(t, "the first connection is closed", func() bool { return where.open.Load() == 1 })
	other.relay.Close()
	await.Until(t, "the second is closed", func() bool { return where.open.Load() == 0 })
}
