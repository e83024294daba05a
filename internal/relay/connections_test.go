package relay_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/internal/relay"
	"github.com/eventd/eventd/pkg/intake"
	"github.com/eventd/eventd/pkg/occurrence"
)

// Who has taken a leader's address gets to know nothing: no request, and so no
// token.
func TestNothingIsSentToAnybodyButTheLeader(t *testing.T) {
	own := servingCertificate(t)
	for name, config := range map[string]*tls.Config{
		"another certificate": {Certificates: []tls.Certificate{servingCertificate(t)}, NextProtos: []string{"h2"}},
		"no HTTP/2":           {Certificates: []tls.Certificate{own}},
		"HTTP/1.1":            {Certificates: []tls.Certificate{own}, NextProtos: []string{"http/1.1"}},
	} {
		t.Run(name, func(t *testing.T) {
			listener, err := tls.Listen("tcp", "127.0.0.1:0", config)
			if err != nil {
				t.Fatal(err)
			}
			heard := make(chan int, 100)
			served := make(chan struct{})
			go func() {
				defer close(served)
				for {
					conn, err := listener.Accept()
					if err != nil {
						return
					}
					n, _ := conn.Read(make([]byte, 1000)) // what comes after the handshake
					heard <- n
					_ = conn.Close()
				}
			}()
			other := standbyWith(t, written(), replicaOptions{leaderWait: 200 * time.Millisecond})
			leaf, err := x509.ParseCertificate(own.Certificate[0])
			if err != nil {
				t.Fatal(err)
			}
			other.relay.SetLeader(listener.Addr().String(), relay.Fingerprint(leaf))
			a := other.post(t, classic("a", 1))
			a.want(t, 503, metav1.StatusReasonServiceUnavailable)
			if a.header.Get("Retry-After") != "1" || other.metric(t, "eventd_relay_refused_total", "unreachable") != 1 {
				t.Errorf("header %v", a.header)
			}
			if n := <-heard; n > 0 {
				t.Errorf("%d bytes were sent", n)
			}
			_ = listener.Close()
			<-served
		})
	}
}

func TestLeaderThatCannotBeReachedIsTriedUntilTimeIsUp(t *testing.T) {
	other := standbyWith(t, written(), replicaOptions{leaderWait: 100 * time.Millisecond})
	where := listenTLS(t, standby(t))
	where.leads(other)
	_ = where.Listener.Close()
	a := other.post(t, classic("a", 1))
	a.want(t, 503, metav1.StatusReasonServiceUnavailable)
	if a.header.Get("Retry-After") != "1" || other.metric(t, "eventd_relay_refused_total", "unreachable") != 1 {
		t.Errorf("header %v", a.header)
	}
}

func TestLeaderThatCannotBeReachedIsTriedAgain(t *testing.T) {
	leader := standby(t)
	other := standbyWith(t, written(), replicaOptions{leaderWait: time.Minute})
	where := listenTLS(t, leader)
	_ = where.Listener.Close()
	where.leads(other)
	request := background(func() answer { return other.post(t, classic("a", 1)) })
	until(t, "it was tried twice", func() bool { return other.metric(t, "eventd_relay_retries_total", "unreachable") >= 2 })
	leader.lead(t)
	defer leader.stopLeading(nil)
	listenAt(t, where.address(), where.TLS.Certificates[0], leader)
	(<-request).want(t, 201, "")
}

// A host that is gone, or a process that is stopped: it is there for TCP, and
// says nothing.
func TestLeaderThatDoesNotShakeHandsHoldsNobodyUp(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	leader, _, where := pair(t)
	other := standbyWith(t, written(), replicaOptions{leaderWait: time.Minute})
	other.relay.SetLeader(silent.Addr().String(), where.fingerprint())
	requests := make([]<-chan answer, 10)
	for i := range requests {
		requests[i] = background(func() answer { return other.post(t, classic(fmt.Sprint("a", i), 1)) })
	}
	ctx, cancel := context.WithCancel(t.Context())
	gone := background(func() answer { return other.doUntil(ctx, t, http.MethodPost, coreEvents, classic("gone", 1)) })
	until(t, "all are there", func() bool { return other.metric(t, "eventd_intake_in_flight") == 11 })
	cancel()
	<-gone
	where.leads(other)
	for _, request := range requests {
		(<-request).want(t, 201, "")
	}
	if got := len(leader.pipeline.occurrences()); got != len(requests) {
		t.Errorf("recorded %d times", got)
	}

	impatient := standbyWith(t, written(), replicaOptions{leaderWait: 50 * time.Millisecond})
	impatient.relay.SetLeader(silent.Addr().String(), where.fingerprint())
	begun := time.Now()
	impatient.post(t, classic("a", 1)).want(t, 503, metav1.StatusReasonServiceUnavailable)
	if waited := time.Since(begun); waited > 2*time.Second {
		t.Errorf("answered after %s", waited)
	}
}

// The former leader's process may still be there, with connections that work.
func TestConnectionsOfAFormerLeaderAreNotUsedForItsSuccessor(t *testing.T) {
	former, next := standby(t), standby(t)
	formerAt := listenTLS(t, former)
	other := standby(t)
	formerAt.leads(other)
	former.lead(t)
	defer func() { former.stopLeading(nil) }()
	other.post(t, classic("a", 1)).want(t, 201, "")

	_ = formerAt.Listener.Close() // its connections go on
	nextAt := listenAt(t, formerAt.address(), servingCertificate(t), next)
	next.lead(t)
	defer func() { next.stopLeading(nil) }()
	nextAt.leads(other)
	other.post(t, classic("b", 1)).want(t, 201, "")
	if got := len(former.pipeline.occurrences()); got != 1 {
		t.Errorf("the former leader has recorded %d times", got)
	}
	if got := len(next.pipeline.occurrences()); got != 1 {
		t.Errorf("the next leader has recorded %d times", got)
	}
}

func TestRequestThatAFormerLeaderWorksOnIsAnsweredByIt(t *testing.T) {
	former, next := standbyWith(t, kept(), replicaOptions{}), standby(t)
	formerAt, nextAt := listenTLS(t, former), listenTLS(t, next)
	other := standby(t)
	formerAt.leads(other)
	ended := former.lead(t)
	slow := background(func() answer { return other.post(t, classic("a", 1)) })
	o := <-former.pipeline.recorded
	former.stopLeading(nil)
	next.lead(t)
	defer func() { next.stopLeading(nil) }()
	nextAt.leads(other)
	other.post(t, classic("b", 1)).want(t, 201, "")
	o.Settled(stored(occurrence.Created, 1))
	(<-slow).want(t, 201, "")
	<-ended
	if got := len(next.pipeline.occurrences()); got != 1 {
		t.Errorf("the next leader has recorded %d times", got)
	}
}

// A leader that shuts its server down sends GOAWAY: what it has begun it answers,
// and what comes then goes to the next one.
func TestServerOfTheLeaderShutsDown(t *testing.T) {
	former, next := standbyWith(t, kept(), replicaOptions{}), standby(t)
	formerAt, nextAt := listenTLS(t, former), listenTLS(t, next)
	other := standbyWith(t, written(), replicaOptions{leaderWait: time.Minute})
	formerAt.leads(other)
	ended := former.lead(t)
	slow := background(func() answer { return other.post(t, classic("slow", 1)) })
	o := <-former.pipeline.recorded

	shutDown := background(func() answer {
		if err := formerAt.Config.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		return answer{}
	})
	later := background(func() answer { return other.post(t, classic("later", 1)) })
	until(t, "the later one is in flight at the former leader or has waited", func() bool {
		return len(former.pipeline.occurrences()) == 2 || other.metric(t, "eventd_relay_retries_total", "unreachable") > 0
	})
	o.Settled(stored(occurrence.Created, 1))
	(<-slow).want(t, 201, "")
	select {
	case o := <-former.pipeline.recorded: // it was faster than the GOAWAY
		o.Settled(stored(occurrence.Created, 2))
	default:
	}
	former.stopLeading(nil)
	next.lead(t)
	defer func() { next.stopLeading(nil) }()
	nextAt.leads(other)
	(<-later).want(t, 201, "")
	<-shutDown
	<-ended
	if got := len(former.pipeline.occurrences()) + len(next.pipeline.occurrences()); got != 2 {
		t.Errorf("recorded %d times", got)
	}
}

func TestManyRequestsShareFewConnections(t *testing.T) {
	leader, other := standbyWith(t, kept(), replicaOptions{}), standby(t)
	where := listenTLS(t, leader)
	where.leads(other)
	ended := leader.lead(t)
	const many = 100 // of which leader.pipeline keeps so many
	requests := make([]<-chan answer, many)
	for i := range requests {
		requests[i] = background(func() answer { return other.post(t, classic(fmt.Sprint("a", i), 1)) })
	}
	for range requests {
		(<-leader.pipeline.recorded).Settled(stored(occurrence.Created, 1))
	}
	for _, request := range requests {
		(<-request).want(t, 201, "")
	}
	if got := where.connections.Load(); got > 2 {
		t.Errorf("%d connections for %d requests at once", got, many)
	}
	leader.stopLeading(nil)
	<-ended
}

// It is not as if the leader could not be reached.
func TestRequestThatFindsNoSlotOnAConnectionWaitsForIt(t *testing.T) {
	leader := standbyWith(t, kept(), replicaOptions{})
	other := standbyWith(t, written(), replicaOptions{leaderWait: time.Minute}, func(_ *intake.Options, o *intake.ServerOptions) { o.MaxInFlight = 200 })
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	// The server may take a moment to notice that it has answered. What comes in that
	// moment is one stream too many for it, and is sent again on another connection
	// (golang/go#47635).
	var tooEarly atomic.Int32
	where := listenWith(t, listener, servingCertificate(t), leader, &http.HTTP2Config{MaxConcurrentStreams: 1, CountError: func(what string) {
		if strings.HasSuffix(what, "over_max_streams") {
			tooEarly.Add(1)
		}
	}})
	where.leads(other)
	ended := leader.lead(t)
	post := func(name string) <-chan answer {
		return background(func() answer { return other.post(t, classic(name, 1)) })
	}
	first := post("a")
	ofFirst := <-leader.pipeline.recorded
	second := post("b")
	ofSecond := <-leader.pipeline.recorded
	third := post("c")
	until(t, "the third is there", func() bool { return other.metric(t, "eventd_intake_in_flight") == 3 })
	ofFirst.Settled(stored(occurrence.Created, 1))
	(<-first).want(t, 201, "")
	(<-leader.pipeline.recorded).Settled(stored(occurrence.Created, 2))
	(<-third).want(t, 201, "")
	ofSecond.Settled(stored(occurrence.Created, 3))
	(<-second).want(t, 201, "")
	if got := other.metric(t, "eventd_relay_retries_total", "unreachable"); got != 0 {
		t.Errorf("%v attempts found the leader unreachable", got)
	}
	if got, more := where.connections.Load(), tooEarly.Load(); got < 2 || got > 2+more {
		t.Errorf("%d connections, and %d requests came too early", got, more)
	}
	leader.stopLeading(nil)
	<-ended
}

// Nor is it told so.
func TestClientIsToldThatALeaderTakesNoMoreAtOnce(t *testing.T) {
	leader := standbyWith(t, kept(), replicaOptions{})
	other := standbyWith(t, written(), replicaOptions{}, oneConnection)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	where := listenWith(t, listener, servingCertificate(t), leader, &http.HTTP2Config{MaxConcurrentStreams: 1})
	where.leads(other)
	ended := leader.lead(t)
	first := background(func() answer { return other.post(t, classic("a", 1)) })
	ofFirst := <-leader.pipeline.recorded
	a := other.post(t, classic("b", 1))
	a.want(t, 503, metav1.StatusReasonServiceUnavailable)
	if text := a.status(t).Message; !strings.HasSuffix(text, ": all connections to it are in use") {
		t.Errorf("answered %q", text)
	}
	if got := where.connections.Load(); got != 1 {
		t.Errorf("%d connections", got)
	}
	ofFirst.Settled(stored(occurrence.Created, 1))
	(<-first).want(t, 201, "")
	leader.stopLeading(nil)
	<-ended
}

// The review of its caller took too long, maybe.
func TestRequestWhoseTimeToWaitIsOverUsesAnOpenConnection(t *testing.T) {
	leader := standby(t)
	other := standbyWith(t, written(), replicaOptions{leaderWait: 1})
	listenTLS(t, leader).leads(other)
	ended := leader.lead(t)
	until(t, "they are connected", func() bool { return other.post(t, classic("a", 1)).code != 503 })
	for i := range 10 {
		other.post(t, classic(fmt.Sprint("b", i), 1)).want(t, 201, "")
	}
	leader.stopLeading(nil)
	<-ended
}

func TestCloseOfARelayClosesItsConnections(t *testing.T) {
	_, other, where := pair(t)
	other.post(t, classic("a", 1)).want(t, 201, "")
	if got := where.open.Load(); got != 1 {
		t.Errorf("%d connections", got)
	}
	other.relay.Close()
	other.relay.Close()
	until(t, "it is closed", func() bool { return where.open.Load() == 0 })
	where.leads(other) // too late
	other.post(t, classic("b", 1)).want(t, 503, metav1.StatusReasonServiceUnavailable)
}

// A leader has, maybe, another certificate for a name than the one that it
// announces.
func TestLeaderIsReachedByNameWithoutSayingSo(t *testing.T) {
	leader, other := standby(t), standbyWith(t, written(), replicaOptions{leaderWait: time.Minute})
	where := listenTLS(t, leader)
	said := make(chan string, 10)
	where.TLS.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		said <- hello.ServerName
		return nil, nil
	}
	_, port, err := net.SplitHostPort(where.address())
	if err != nil {
		t.Fatal(err)
	}
	ended := leader.lead(t)
	other.relay.SetLeader(net.JoinHostPort("localhost", port), where.fingerprint())
	other.post(t, classic("a", 1)).want(t, 201, "")
	if name := <-said; name != "" {
		t.Errorf("it was asked for as %q", name)
	}
	leader.stopLeading(nil)
	<-ended
}
