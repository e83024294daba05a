package intake

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

// directStream is a stream of HTTP/2 without a server: what is written waits until it is read
// from the other end.
type directStream struct {
	httptest.ResponseRecorder
	net.Conn
	timer *time.Timer
}

func (s *directStream) Write(p []byte) (int, error) {
	if len(p) == 0 { // the header
		return 0, nil
	}
	return s.Conn.Write(p)
}

func (s *directStream) Flush() {}

// SetWriteDeadline has a deadline reset the stream, as in HTTP/2.
func (s *directStream) SetWriteDeadline(at time.Time) error {
	s.timer.Stop()
	if !at.IsZero() {
		s.timer = time.AfterFunc(time.Until(at), func() { _ = s.Close() })
	}
	return nil
}

// replicaTokens is a Forwarder that reviews tokens.
type replicaTokens struct {
	Forwarder
	review func() (bool, error)
	asked  int
}

func (r *replicaTokens) IsPeer(context.Context, string) (bool, error) {
	r.asked++
	return r.review()
}

// runSession runs a session in a bubble, whose follower stays connected.
func runSession(t *testing.T, f Forwarder, serve func(context.Context, io.ReadWriteCloser) error) (ended <-chan struct{}) {
	t.Helper()
	own, follower := net.Pipe()
	t.Cleanup(func() { _ = follower.Close() })
	s := newSessions(&ServerOptions{Replication: serve, Forwarder: f})
	req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, ReplicationPath, own)
	done := make(chan struct{})
	go func() {
		defer close(done)
		timer := time.AfterFunc(time.Hour, func() {})
		s.run(&directStream{Conn: own, timer: timer}, req, "token")
	}()
	return done
}

// readAll is a leader that reads until the session ends.
func readAll(_ context.Context, s io.ReadWriteCloser) error {
	_, err := io.Copy(io.Discard, s)
	return err
}

func TestSessionLastsAsLongAsItsTokenIsAccepted(t *testing.T) {
	undecided := errors.New("webhook call failed: no answer") // as Undecided knows it
	for name, test := range map[string]struct {
		ok   bool
		err  error
		ends bool
	}{
		"accepted":  {true, nil, false},
		"rejected":  {false, nil, true},
		"invalid":   {false, errors.New("invalid bearer token"), true},
		"undecided": {false, undecided, false},
		"own token": {false, OwnTokenError{errors.New("expired")}, false},
	} {
		bubble := func(t *testing.T) {
			tokens := &replicaTokens{review: func() (bool, error) { return test.ok, test.err }}
			ended := runSession(t, tokens, readAll)
			time.Sleep(3*sessionReviewPeriod + time.Second)
			synctest.Wait()
			select {
			case <-ended:
				equal(t, "ended", true, test.ends)
				equal(t, "reviews before the end", tokens.asked, 1)
			default:
				equal(t, "ended", false, test.ends)
				equal(t, "reviews", tokens.asked, 3)
			}
		}
		t.Run(name, func(t *testing.T) { synctest.Test(t, bubble) })
	}
}

// The write fails, and the leader returns.
func TestFollowerThatReadsNothingEndsItsSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		tokens := &replicaTokens{review: func() (bool, error) { return true, nil }}
		ended := runSession(t, tokens, func(_ context.Context, s io.ReadWriteCloser) error {
			time.Sleep(time.Minute) // an idle session has no deadline
			_, err := s.Write([]byte("batch"))
			return err
		})
		<-ended
		equal(t, "after", time.Since(began), time.Minute+writeTimeout)
	})
}

// lateStream is a stream whose writes return late.
type lateStream struct {
	directStream
	begun, written chan struct{}
}

func (s *lateStream) Write(p []byte) (int, error) {
	if len(p) > 0 {
		close(s.begun)
		<-s.written
	}
	return len(p), nil
}

// A replication that has abandoned a write returns before it. net/http panics when a stream is used
// after its handler has returned, or writes to another one.
func TestSessionEndsAfterItsLastWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own, _ := net.Pipe()
		timer := time.AfterFunc(time.Hour, func() {})
		stream := &lateStream{directStream{Conn: own, timer: timer}, make(chan struct{}), make(chan struct{})}
		s := newSessions(&ServerOptions{Replication: func(_ context.Context, s io.ReadWriteCloser) error {
			go func() { _, _ = s.Write([]byte("batch")) }()
			<-stream.begun
			return nil
		}})
		ended := false
		go func() {
			s.run(stream, httptest.NewRequestWithContext(t.Context(), http.MethodPost, ReplicationPath, own), "token")
			ended = true
		}()
		synctest.Wait()
		equal(t, "ended while it writes", ended, false)
		close(stream.written)
		synctest.Wait()
		equal(t, "ended", ended, true)
	})
}

func TestReplicationNeedsAForwarder(t *testing.T) {
	o := ServerOptions{Replication: readAll}
	if err := o.validate(); err == nil {
		t.Error("no error")
	}
}
