package intake

import (
	"bufio"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/eventd/eventd/internal/relay/frame"
)

// hijackable is a response whose connection can be taken over, without a server.
type hijackable struct {
	*httptest.ResponseRecorder
	conn net.Conn
	in   *bufio.Reader // of the connection
}

func (h *hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return h.conn, bufio.NewReadWriter(h.in, bufio.NewWriter(h.conn)), nil
}

// standby is the other end of a forwarding session, in a bubble.
type standby struct {
	conn   net.Conn
	out    *frame.Writer
	frames chan received // without pings; closed when the session is
	ended  chan struct{} // closed when the leader's end has returned
}

// received is a frame.
type received struct {
	kind    frame.Kind
	id      uint64
	payload string
}

// newTestForwardings returns the sessions, one at a time, of replicas that are accepted.
func newTestForwardings(handler http.Handler) *forwardings {
	accepting := &replicaTokens{review: func() (bool, error) { return true, nil }}
	return &forwardings{handler: handler, forwarder: accepting, open: make(chan struct{}, 1)}
}

// forwardTo opens a session in which a handler answers.
func forwardTo(t *testing.T, handler http.HandlerFunc) *standby {
	t.Helper()
	s := openForwarding(t, newTestForwardings(handler))
	go s.read()
	return s
}

// openForwarding opens a session, of which nothing is read.
func openForwarding(t *testing.T, f *forwardings) *standby {
	t.Helper()
	own, other := net.Pipe()
	s := &standby{conn: other, out: frame.NewWriter(other), frames: make(chan received, 2*frame.MaxPending), ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		f.run(&hijackable{httptest.NewRecorder(), own, bufio.NewReader(own)}, httptest.NewRequestWithContext(t.Context(), http.MethodPost, ForwardingPath, nil), "token")
	}()
	response, err := http.ReadResponse(bufio.NewReader(other), nil)
	if err != nil || response.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(response, err)
	}
	go func() { _ = s.out.Run() }()
	return s
}

func (s *standby) read() {
	defer close(s.frames)
	frames := frame.NewReader(s.conn)
	for {
		kind, id, payload, err := frames.Next()
		if err != nil {
			return
		}
		if kind != frame.Ping {
			s.frames <- received{kind, id, string(payload)}
		}
	}
}

// leave closes the session, and returns when the leader's end has ended.
func (s *standby) leave() {
	s.out.Close()
	_ = s.conn.Close()
	<-s.ended
}

// post sends a request with headers and a time until its deadline.
func (s *standby) post(t *testing.T, id uint64, timeout time.Duration, header http.Header) {
	t.Helper()
	s.forward(t, id, &frame.Forwarded{
		Timeout: timeout, Method: http.MethodPost, URI: "/", User: &user.DefaultInfo{Name: "caller"}, Header: header,
	})
}

func (s *standby) forward(t *testing.T, id uint64, request *frame.Forwarded) {
	t.Helper()
	f, ok := frame.AppendRequest(nil, id, request, nil)
	if !ok {
		t.Fatal("too long")
	}
	if _, ok := s.out.TryAdd(f); !ok {
		t.Error("not added")
	}
	s.out.Flush(true)
}

// answer is the whole answer to the only request, and the number of its frames.
func (s *standby) answer(t *testing.T) (code int, body string, frames int) {
	t.Helper()
	data := ""
	for f := range s.frames {
		frames++
		if f.kind != frame.Answer || len(f.payload) > answerChunk+1 {
			t.Fatalf("frame %d of %d bytes", f.kind, len(f.payload))
		}
		data += f.payload[1:]
		if f.payload[0] == 1 {
			break
		}
	}
	code, _, all, err := frame.DecodeAnswer([]byte(data))
	if err != nil {
		t.Fatal(err)
	}
	return code, string(all), frames
}

// hang is a handler that waits for the end of its request.
func hang(_ http.ResponseWriter, req *http.Request) { <-req.Context().Done() }

// wantEnded checks whether the leader has ended the session by now.
func (s *standby) wantEnded(t *testing.T, want bool) {
	t.Helper()
	synctest.Wait()
	select {
	case <-s.ended:
		equal(t, "ended", true, want)
	default:
		equal(t, "ended", false, want)
	}
}
