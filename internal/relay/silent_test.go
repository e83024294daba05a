package relay_test

import (
	"net"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A process that is stopped keeps its connections, on which it says nothing.
func TestLeaderThatFallsSilentIsGivenUp(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	stopped := make(chan struct{})
	c := newCaptureOn(t, muting{listener, stopped})
	other := standbyWith(t, written(), replicaOptions{leaderWait: time.Minute})
	c.leads(other)
	if a := other.post(t, classic("a", 1)); a.code != 201 {
		t.Fatalf("answered %d: %s", a.code, a.body)
	}
	close(stopped)
	begun := time.Now()
	a := other.post(t, classic("b", 1))
	a.want(t, 503, metav1.StatusReasonServiceUnavailable)
	if waited := time.Since(begun); waited < 4*time.Second || waited > 8*time.Second { // of a deadline of 60 s
		t.Errorf("answered after %s", waited)
	}
	if a.header.Get("Retry-After") != "1" || other.metric(t, "eventd_relay_refused_total", "lost") != 1 {
		t.Errorf("header %v", a.header)
	}
}

// muting lets its connections say nothing any more once a channel is closed.
type muting struct {
	net.Listener
	stopped <-chan struct{}
}

func (l muting) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return muted{conn, l.stopped}, err
}

type muted struct {
	net.Conn
	stopped <-chan struct{}
}

func (c muted) Write(b []byte) (int, error) {
	select {
	case <-c.stopped:
		return len(b), nil
	default:
		return c.Conn.Write(b)
	}
}
