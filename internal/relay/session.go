package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/eventd/eventd/internal/grace"
	"github.com/eventd/eventd/pkg/election"
	"github.com/eventd/eventd/pkg/intake"
)

const (
	// sessionOpenTimeout is for the leader's answer, which waits for a review.
	sessionOpenTimeout = reviewTimeout + connectTimeout
	// sessionWriteTimeout is for one write to a session.
	sessionWriteTimeout = 10 * time.Second
)

var errSilent = errors.New("the leader does not answer in time")

// openSession opens a session, on a connection of its own, and returns when it has ended.
func (r *Relay) openSession(ctx context.Context, leader election.Announcement, follow Follow) error {
	own := newConnections(leader, 1, &health{})
	own.acquire()
	defer own.release()
	defer own.retire()
	// The end of ctx ends the session in order.
	request, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	body, out := io.Pipe()
	response, err := r.requestSession(request, ctx, cancel, own, body)
	if err != nil {
		return fmt.Errorf("opening a session: %w", err)
	}
	// net/http does not notice the end of the context while it waits to send the body.
	defer context.AfterFunc(request, func() { _ = response.Body.Close() })()
	s := &followerStream{in: response.Body, out: out, cancel: cancel}
	defer s.finish()
	r.metrics.sessions.Inc()
	defer r.metrics.sessions.Dec()
	klog.FromContext(ctx).V(2).Info("Following the leader", "address", leader.Address)
	return follow(ctx, s)
}

// requestSession returns the leader's response. The request ends with its context, with life
// until it is answered, and after sessionOpenTimeout.
func (r *Relay) requestSession(request, life context.Context, cancel context.CancelCauseFunc, over *connections, body io.Reader) (*http.Response, error) {
	stop := context.AfterFunc(life, func() { cancel(context.Cause(life)) })
	defer stop()
	timer := time.AfterFunc(sessionOpenTimeout, func() { cancel(errSilent) })
	defer timer.Stop()
	req, err := r.sessionRequest(request, over.server, body)
	if err != nil {
		return nil, err
	}
	response, err := over.transport.RoundTrip(req)
	if err != nil {
		return nil, errors.Join(err, context.Cause(request))
	}
	if response.StatusCode != http.StatusOK {
		_ = response.Body.Close()
		return nil, errors.New("the leader answers " + response.Status)
	}
	return response, nil
}

func (r *Relay) sessionRequest(ctx context.Context, leader election.Announcement, body io.Reader) (*http.Request, error) {
	token, err := r.token.get()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoToken, err)
	}
	asserted, err := r.assertSelf(r.peers.lastName())
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+leader.Address+intake.ReplicationPath, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set(intake.AssertedUserHeader, asserted)
	return req, nil
}

// followerStream is the follower's end of a session. One goroutine may read while another
// one writes. Close may be called by any goroutine and again.
type followerStream struct {
	in     io.Reader
	out    *io.PipeWriter // the body of the request
	cancel context.CancelCauseFunc

	close  sync.Once
	linger *time.Timer // from Close
}

// Read implements io.Reader.
func (s *followerStream) Read(p []byte) (int, error) { return s.in.Read(p) }

// Write implements io.Writer. It returns when the connection has accepted all bytes, and
// ends the session after sessionWriteTimeout.
func (s *followerStream) Write(p []byte) (int, error) {
	timer := time.AfterFunc(sessionWriteTimeout, func() { s.cancel(errSilent) })
	defer timer.Stop()
	return s.out.Write(p)
}

// Close implements io.Closer. What was written arrives at the leader, which ends the session
// then. A Read returns after grace.Period at the latest.
func (s *followerStream) Close() error {
	s.close.Do(func() {
		_ = s.out.Close()
		s.linger = time.AfterFunc(grace.Period, func() { s.cancel(io.ErrClosedPipe) })
	})
	return nil
}

// finish closes the session, and returns when the leader has ended it too.
func (s *followerStream) finish() {
	_ = s.Close()
	defer s.linger.Stop()
	_, _ = io.Copy(io.Discard, s.in)
}
