package relay_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/eventd/eventd/pkg/intake"
	"github.com/eventd/eventd/pkg/occurrence"
)

// oneConnection is a setting of a replica that has one connection to the leader.
func oneConnection(_ *intake.Options, o *intake.ServerOptions) { o.MaxInFlight = 100 }

// One has ids for 2^30 requests.
func TestConnectionThatHasTakenAllItsRequestsIsReplacedAndClosed(t *testing.T) {
	leader := standbyWith(t, kept(), replicaOptions{})
	other := standbyWith(t, written(), replicaOptions{leaderWait: time.Minute}, oneConnection)
	where := listenTLS(t, leader)
	where.leads(other)
	other.relay.ReplaceConnectionsAfter(2)
	ended := leader.lead(t)
	requests := make([]<-chan answer, 3)
	recorded := make([]*occurrence.Occurrence, len(requests))
	for i := range requests {
		requests[i] = background(func() answer { return other.post(t, classic(fmt.Sprint("a", i), 1)) })
		recorded[i] = <-leader.pipeline.recorded
	}
	if made, open := where.connections.Load(), where.open.Load(); made != 2 || open != 2 {
		t.Errorf("%d connections were made, and %d are open, while all three requests are in flight", made, open)
	}
	for i, request := range requests {
		recorded[i].Settled(stored(occurrence.Created, i))
		(<-request).want(t, 201, "")
	}
	until(t, "the first connection is closed", func() bool { return where.open.Load() == 1 })
	leader.stopLeading(nil)
	<-ended
}

// scripted has the first connections of a listener served by a script. What it refuses
// has certainly had no effect: net/http or the relay sends it again.
type scripted struct {
	net.Listener
	left   atomic.Int32
	config *tls.Config
	script func(*http2.Framer, net.Conn)
}

func (l *scripted) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil || l.left.Add(-1) < 0 {
			return conn, err
		}
		go l.serve(conn)
	}
}

func (l *scripted) serve(plain net.Conn) {
	conn := tls.Server(plain, l.config)
	defer func() { _ = conn.Close() }()
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(conn, preface); err != nil || !bytes.Equal(preface, []byte(http2.ClientPreface)) {
		return
	}
	framer := http2.NewFramer(conn, conn)
	_ = framer.WriteSettings()
	l.script(framer, conn)
	_ = conn.CloseWrite()            // as net/http does a second later
	_, _ = io.Copy(io.Discard, conn) // or the client might read nothing of it
}

// firstStream reads until a request begins.
func firstStream(f *http2.Framer) (id uint32) {
	for {
		frame, err := f.ReadFrame()
		var streamError http2.StreamError
		if err != nil && !errors.As(err, &streamError) {
			return 0
		}
		if headers, ok := frame.(*http2.HeadersFrame); ok {
			return headers.StreamID
		}
	}
}

func TestRequestThatIsCertainlyNotServedIsSentAgain(t *testing.T) {
	for name, script := range map[string]func(*http2.Framer, net.Conn){
		"the connection is shut down before": func(f *http2.Framer, _ net.Conn) {
			_ = f.WriteGoAway(0, http2.ErrCodeNo, nil)
		},
		"the connection is shut down without it": func(f *http2.Framer, _ net.Conn) {
			firstStream(f)
			_ = f.WriteGoAway(0, http2.ErrCodeNo, nil)
		},
		"the stream is refused, and the connection shut down": func(f *http2.Framer, _ net.Conn) {
			id := firstStream(f)
			_ = f.WriteGoAway(id, http2.ErrCodeNo, nil)
			_ = f.WriteRSTStream(id, http2.ErrCodeRefusedStream)
		},
	} {
		t.Run(name, func(t *testing.T) {
			leader := standby(t)
			other := standbyWith(t, written(), replicaOptions{leaderWait: time.Minute}, oneConnection)
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			certificate := servingCertificate(t)
			first := &scripted{Listener: listener, script: script,
				config: &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"h2"}}}
			first.left.Store(1)
			where := listenOn(t, first, certificate, leader)
			where.leads(other)
			ended := leader.lead(t)
			unnamed := classic("", 1) // which is not sent again if it may have been recorded
			unnamed.GenerateName = "a-"
			other.do(t, http.MethodPost, coreEvents, unnamed).want(t, 201, "")
			if got := where.connections.Load(); got != 1 {
				t.Errorf("%d connections after the first", got)
			}
			leader.stopLeading(nil)
			<-ended
		})
	}
}

// A leader that refuses all requests is not sent one handshake after the other.
func TestConnectionsAreMadeOneAfterAPause(t *testing.T) {
	other := standbyWith(t, written(), replicaOptions{leaderWait: time.Minute}, oneConnection)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	certificate := servingCertificate(t)
	const many, each = 10, 20 * time.Millisecond
	all := &scripted{Listener: listener,
		script: func(f *http2.Framer, _ net.Conn) { _ = f.WriteGoAway(0, http2.ErrCodeNo, nil) },
		config: &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"h2"}}}
	all.left.Store(1 << 20)
	ctx, cancel := context.WithCancel(t.Context())
	begun := time.Now()
	listenOn(t, all, certificate, http.NotFoundHandler()).leads(other)
	gone := background(func() answer { return other.doUntil(ctx, t, http.MethodPost, coreEvents, classic("a", 1)) })
	until(t, "many connections were made", func() bool { return all.left.Load() <= 1<<20-many })
	if took := time.Since(begun); took < (many-1)*each {
		t.Errorf("%d connections were made within %s", many, took)
	}
	cancel()
	<-gone
}
