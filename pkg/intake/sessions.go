package intake

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"

	"github.com/eventd/eventd/internal/sleep"
)

// ReplicationPath is where a replica accepts sessions: a POST over HTTP/2, authenticated as
// a forwarded request, whose body and response are the two directions.
const ReplicationPath = "/eventd/v1/replication"

// ReplicaExtra is the extra of the user that a replica asserts in a session, itself: its name.
const ReplicaExtra = "eventd.io/replica"

type replicaKey struct{}

// ReplicaOf returns the name of the other end of a session, "" if it has sent none.
func ReplicaOf(ctx context.Context) string {
	name, _ := ctx.Value(replicaKey{}).(string)
	return name
}

// replicaName returns the name that a replica asserts.
func replicaName(ctx context.Context) string {
	if caller, ok := request.UserFrom(ctx); ok {
		if names := caller.GetExtra()[ReplicaExtra]; len(names) == 1 {
			return names[0]
		}
	}
	return ""
}

const (
	// maxSessions is above the number of replicas: sessions whose other end has
	// vanished may be left.
	maxSessions = 4
	// sessionReviewPeriod is between two reviews of the token of an open session.
	sessionReviewPeriod = reviewTTL
)

// errNotPeer is why a session ends whose token has expired or was revoked.
var errNotPeer = errors.New("the token of the replica is no longer accepted")

// sessions serves the sessions of other replicas. A session is authenticated behind the
// same filters and limits as a forwarded request. When all of them have returned, it has
// the connection's stream for itself: it is not in flight, has no seat and no timeout, and
// its bytes are no unread response.
type sessions struct {
	serve     func(context.Context, io.ReadWriteCloser) error
	forwarder Forwarder
	open      chan struct{} // has a value for each session
}

func newSessions(o *ServerOptions) *sessions {
	return &sessions{serve: o.Replication, forwarder: o.Forwarder, open: make(chan struct{}, maxSessions)}
}

// begin is a filter behind the authentication. It lets unreadResponses.buffered run a
// session in place of a response.
func (s *sessions) begin(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if !Forwarded(req) || req.ProtoMajor < 2 || req.Method != http.MethodPost || req.URL.Path != ReplicationPath {
			next.ServeHTTP(w, req)
			return
		}
		call, name := callOf(req.Context()), replicaName(req.Context())
		session := func(w http.ResponseWriter, req *http.Request) {
			s.run(w, req.WithContext(context.WithValue(req.Context(), replicaKey{}, name)), call.token)
		}
		call.session.Store(&session)
	})
}

// run serves a session until one of the two ends closes it, or its token is rejected.
func (s *sessions) run(w http.ResponseWriter, req *http.Request, token string) {
	select {
	case s.open <- struct{}{}:
		defer func() { <-s.open }()
	default:
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	ctx, cancel := context.WithCancelCause(req.Context())
	stream := &sessionStream{w: w, control: http.NewResponseController(w), body: req.Body}
	stop := context.AfterFunc(ctx, func() { _ = stream.Close() })
	var reviewing sync.WaitGroup
	reviewing.Go(func() { reviewPeer(ctx, cancel, s.forwarder, token) })
	_, err := stream.Write(nil) // the header
	if err == nil {
		err = s.serve(ctx, stream)
	}
	klog.FromContext(ctx).V(2).Info("A replication session has ended", "replica", req.RemoteAddr, "err", err, "cause", context.Cause(ctx))
	stop()
	cancel(nil)
	_ = stream.Close()
	stream.writes.Wait() // before the server reuses w
	reviewing.Wait()
}

// reviewPeer ends a session when its token is no longer accepted. An apiserver that does not
// answer ends none.
func reviewPeer(ctx context.Context, end context.CancelCauseFunc, forwarder Forwarder, token string) {
	for sleep.For(ctx, sessionReviewPeriod) == nil {
		if ok, err := forwarder.IsPeer(ctx, token); !ok && (err == nil || !Undecided(err)) {
			end(errNotPeer)
			return
		}
	}
}

// sessionStream is the leader's end of a session. One goroutine may read while another one
// writes. Close ends both at once, and may be called by any goroutine and again. What was
// written before arrives at the follower.
type sessionStream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	body    io.Reader

	mu      sync.Mutex
	writing bool
	closed  bool
	writes  sync.WaitGroup // one while writing
}

// Read implements io.Reader.
func (s *sessionStream) Read(p []byte) (int, error) { return s.body.Read(p) }

// Write implements io.Writer. It returns when the connection has accepted all bytes, and
// fails after writeTimeout.
func (s *sessionStream) Write(p []byte) (int, error) {
	if !s.beginWrite() {
		return 0, io.ErrClosedPipe
	}
	defer s.endWrite()
	n, err := s.w.Write(p)
	if err == nil {
		err = s.control.Flush()
	}
	return n, err
}

func (s *sessionStream) beginWrite() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.writing = true
	s.writes.Add(1)
	_ = s.control.SetWriteDeadline(time.Now().Add(writeTimeout)) // HTTP/2 has it
	return true
}

// endWrite removes the deadline, which would reset an idle stream.
func (s *sessionStream) endWrite() {
	defer s.writes.Done() // after the last use of w
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writing = false
	if !s.closed {
		_ = s.control.SetWriteDeadline(time.Time{})
	}
}

// Close implements io.Closer.
func (s *sessionStream) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	past := time.Now().Add(-time.Second)
	_ = s.control.SetReadDeadline(past)
	if s.writing {
		_ = s.control.SetWriteDeadline(past) // resets the stream
	}
	return nil
}
