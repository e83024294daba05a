package relay_test

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/test/await"
)

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
}

// scripted has the first connections of a listener served by a script. What it refuses
// has certainly had no effect: net/http or the relay sends it again.
type scripted struct {
	net.Listener
	server *httptest.Server
	left   atomic.Int32
	script func(*http2.Framer)
}

// serve has a server's first connections served by the script.
func (l *scripted) serve(first int32) func(*httptest.Server) {
	l.left.Store(first)
	return func(s *httptest.Server) {
		l.server, l.Listener = s, s.Listener
		s.Listener = l
	}
}

func (l *scripted) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil || l.left.Add(-1) < 0 {
			return conn, err
		}
		go l.run(conn)
	}
}

func (l *scripted) run(plain net.Conn) {
	conn := tls.Server(plain, l.server.TLS)
	defer func() { _ = conn.Close() }()
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(conn, preface); err != nil || !bytes.Equal(preface, []byte(http2.ClientPreface)) {
		return
	}
	framer := http2.NewFramer(conn, conn)
	_ = framer.WriteSettings()
	l.script(framer)
	_ = conn.CloseWrite()            // as net/http does a second later
	_, _ = io.Copy(io.Discard, conn) // or the client might read nothing of it
}

// firstStream reads until a request begins.
func firstStream(f *http2.Framer) (id uint32) {
	for {
		frame, err := f.ReadFrame()
		if err != nil && !errors.As(err, new(http2.StreamError)) {
			return 0
		}
		if headers, ok := frame.(*http2.HeadersFrame); ok {
			return headers.StreamID
		}
	}
}

func shutDown(f *http2.Framer) { _ = f.WriteGoAway(0, http2.ErrCodeNo, nil) }

func TestRequestThatIsCertainlyNotServedIsSentAgain(t *testing.T) {
	for name, script := range map[string]func(*http2.Framer){
		"the connection is shut down before": shutDown,
		"the connection is shut down without it": func(f *http2.Framer) {
			firstStream(f)
			shutDown(f)
		},
		"the stream is refused, and the connection shut down": func(f *http2.Framer) {
			id := firstStream(f)
			_ = f.WriteGoAway(id, http2.ErrCodeNo, nil)
			_ = f.WriteRSTStream(id, http2.ErrCodeRefusedStream)
		},
	} {
		t.Run(name, func(t *testing.T) {
			leader := newReplica(t, options{})
			other := newReplica(t, options{leaderWait: time.Minute, set: oneConnection})
			where := listen(t, leader, (&scripted{script: script}).serve(1))
			where.leads(other)
			leader.lead(t)
			unnamed := classic("", 1) // which is not sent again if it may have been recorded
			unnamed.GenerateName = "a-"
			other.Post(t, unnamed).Want(t, 201, "")
			if got := where.connections.Load(); got != 1 {
				t.Errorf("%d connections after the first", got)
			}
		})
	}
}

// A leader that refuses all requests is not sent one handshake after the other.
func TestConnectionsAreMadeOneAfterAPause(t *testing.T) {
	other := newReplica(t, options{leaderWait: time.Minute, set: oneConnection})
	const all, many, each = 1 << 20, 10, 20 * time.Millisecond
	server := &scripted{script: shutDown}
	begun := time.Now()
	listen(t, http.NotFoundHandler(), server.serve(all)).leads(other)
	gone, leave := leaving(t, other)
	await.Until(t, "many connections were made", func() bool { return server.left.Load() <= all-many })
	if took := time.Since(begun); took < (many-1)*each {
		t.Errorf("%d connections were made within %s", many, took)
	}
	leave()
	<-gone
}
