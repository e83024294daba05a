package relay_test

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/eventd/eventd/internal/relay/frame"
	"github.com/eventd/eventd/pkg/intake"
)

// rawSession is an end of a session that the test has in its hands.
type rawSession struct {
	net.Conn
	frames *frame.Reader
}

func (s *rawSession) send(frames ...[]byte) {
	for _, f := range frames {
		_, _ = s.Write(f) // the other end may have ended
	}
}

func (s *rawSession) answer(id uint64, code int, body string) {
	f := append(frame.Begin(nil, frame.Answer, id), 1)
	f = append(frame.AppendAnswerHead(f, code, http.Header{"Content-Type": {"application/json"}}), body...)
	frame.End(f, 0)
	s.send(f)
}

// rawLeader accepts sessions, and has serve handle the last one until it returns.
func rawLeader(t testing.TB, serve func(*rawSession)) *listening {
	t.Helper()
	return listen(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path != intake.ForwardingPath {
			w.WriteHeader(http.StatusCreated)
			return
		}
		s := acceptRaw(w)
		defer s.Close()
		serve(s)
	}))
}

func acceptRaw(w http.ResponseWriter) *rawSession {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+intake.ForwardingProtocol+"\r\n\r\n")
	return &rawSession{conn, frame.NewReader(conn)}
}

// openRaw asks a leader for a session.
func openRaw(t testing.TB, leader *listening, header ...string) (*rawSession, int) {
	t.Helper()
	conn := must(tls.Dial("tcp", leader.address(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}))
	t.Cleanup(func() { _ = conn.Close() })
	req := newRequest(t.Context(), t, http.MethodPost, "https://"+leader.address()+intake.ForwardingPath, nil,
		append(header, "Connection", "Upgrade", "Upgrade", intake.ForwardingProtocol)...)
	if err := req.Write(conn); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), req)
	if err != nil {
		t.Fatal(err)
	}
	return &rawSession{conn, frame.NewReader(conn)}, response.StatusCode
}

// asPeerSession opens a session as a replica does.
func asPeerSession(t testing.TB, where *listening) *rawSession {
	t.Helper()
	s, code := openRaw(t, where, "Authorization", "Bearer "+peerToken, "Eventd-Asserted-User", must(intake.EncodeUser(&user.DefaultInfo{Name: peerUser})))
	if code != 101 {
		t.Fatalf("answered %d", code)
	}
	return s
}

func encoded(id uint64, f frame.Forwarded) []byte {
	if f.User == nil {
		f.User = &user.DefaultInfo{Name: "tester"}
	}
	f.Timeout = time.Minute
	all, _ := frame.AppendRequest(nil, id, &f, nil)
	return all
}

// wantAnswer reads the answer to a request.
func (s *rawSession) wantAnswer(t testing.TB, id uint64) (code int) {
	t.Helper()
	var data []byte
	for {
		kind, of, payload, err := s.frames.Next()
		switch {
		case err != nil:
			t.Fatal(err)
		case kind == frame.Ping:
		case kind != frame.Answer || of != id:
			t.Fatalf("frame %d of request %d", kind, of)
		default:
			data = append(data, payload[1:]...)
			if payload[0] == 1 {
				code, _, _, err := frame.DecodeAnswer(data)
				if err != nil {
					t.Fatal(err)
				}
				return code
			}
		}
	}
}
