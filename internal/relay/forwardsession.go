package relay

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/eventd/eventd/internal/relay/frame"
	"github.com/eventd/eventd/pkg/intake"
)

// maxAnswerBytes limits what is kept of an answer. A leader sends less (pkg/intake/responses.go).
const maxAnswerBytes = 32 << 20

var (
	// errNoSession: the request must be forwarded over HTTP/2. There is no session, the
	// request is too large for it, or too much waits in it.
	errNoSession = errors.New("there is no forwarding session")
	errRefused   = errors.New("the leader refuses a forwarding session")
	errRotated   = errors.New("this replica has another token")
)

// Forward keeps a forwarding session with the leader that SetLeader has named, until ctx
// ends: usual requests are forwarded in it, many in one write, for a fraction of what a
// request over HTTP/2 costs. Without a session they are forwarded over HTTP/2. It must be
// called once. It returns when no session accepts requests. One whose requests wait for
// their answers ends with the last of them.
func (r *Relay) Forward(ctx context.Context) error {
	return r.keepSessions(ctx, func(ctx context.Context, leader leaderServer) error {
		err := r.forwardIn(ctx, leader)
		if err != nil && ctx.Err() == nil && r.leads(leader) && !errors.Is(err, errRotated) && r.errorLog.Allow("forwarding session") {
			klog.FromContext(ctx).Info("Requests are forwarded over HTTP/2, which costs more", "address", leader.hostPort, "reason", err)
		}
		return err
	})
}

// forwardIn opens a session, and returns when it accepts no more requests.
func (r *Relay) forwardIn(ctx context.Context, leader leaderServer) error {
	token, err := r.token.get()
	if err != nil {
		return fmt.Errorf("%w: %w", errNoToken, err)
	}
	conn, err := r.upgrade(ctx, leader, token)
	if err != nil {
		return err
	}
	s := newForwardSession(leader, conn)
	go s.run()
	defer s.retire()
	if !r.setSession(s) {
		return errRetired
	}
	defer r.dropSession(s)
	ticker := time.NewTicker(frame.Period)
	defer ticker.Stop()
	for {
		select {
		case <-s.retired:
			return s.cause()
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
		if now, err := r.token.get(); err == nil && now != token {
			return errRotated // the leader ends a session with a token that has expired
		}
	}
}

// upgrade makes a connection of the session's own, and authenticates this replica.
func (r *Relay) upgrade(ctx context.Context, leader leaderServer, token string) (_ net.Conn, err error) {
	asserted, err := r.assertSelf(r.peers.lastName())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, sessionOpenTimeout)
	defer cancel()
	dialer := tls.Dialer{Config: leader.tlsConfig(http1)}
	conn, err := dialer.DialContext(ctx, "tcp", leader.hostPort)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNotConnected, err)
	}
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })()
	defer func() {
		if err != nil {
			_ = conn.Close()
		}
	}()
	req, err := http.NewRequest(http.MethodPost, "https://"+leader.hostPort+intake.ForwardingPath, nil)
	if err != nil {
		return nil, err
	}
	req.Header = http.Header{
		"Authorization": {"Bearer " + token}, intake.AssertedUserHeader: {asserted},
		"Connection": {"Upgrade"}, "Upgrade": {intake.ForwardingProtocol},
	}
	if err := req.Write(conn); err != nil {
		return nil, err
	}
	in := bufio.NewReader(conn)
	response, err := http.ReadResponse(in, req)
	switch {
	case err != nil:
		return nil, err
	case response.StatusCode == http.StatusSwitchingProtocols && in.Buffered() == 0: // the leader sends nothing first
		return conn, nil
	case isUnsupported(response.StatusCode):
		return nil, errUnsupported
	}
	return nil, fmt.Errorf("%w: %s", errRefused, response.Status)
}

// setSession has requests forwarded in a session, unless its leader leads no more.
func (r *Relay) setSession(s *forwardSession) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.leader == nil || r.leader.server != s.server {
		return false
	}
	r.session = s
	return true
}

func (r *Relay) dropSession(s *forwardSession) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.session == s {
		r.session = nil
	}
}

// sendInSession makes one attempt to have the leader answer in the session. The error is
// errNoSession if nothing was attempted.
func (r *Relay) sendInSession(ctx context.Context, leader *connections, out *outgoing) (*answer, error) {
	r.mu.Lock()
	s := r.session
	r.mu.Unlock()
	if s == nil || s.server != leader.server || out.received == nil {
		return nil, errNoSession
	}
	a, err := s.roundTrip(ctx, out)
	if !errors.Is(err, errNoSession) {
		r.metrics.inSession.Inc()
	}
	return a, err
}

// forwardSession is the standby's end of a forwarding session.
type forwardSession struct {
	server  leaderServer
	conn    net.Conn
	out     *frame.Writer
	retired chan struct{} // closed when it accepts no more requests

	mu       sync.Mutex
	lastID   uint64
	pending  map[uint64]*pending
	recent   frame.Recent // of them
	retiring bool
	err      error // why it has ended
}

// pending is a request without its whole answer.
type pending struct {
	position int64  // of its frame, for Writer.Taken
	data     []byte // of the answer
	err      error
	ended    chan struct{} // closed when data or err is final
}

func newForwardSession(server leaderServer, conn net.Conn) *forwardSession {
	return &forwardSession{
		server: server, conn: conn, out: frame.NewWriter(frame.Limited{Conn: conn}),
		retired: make(chan struct{}), pending: make(map[uint64]*pending),
	}
}

// run reads answers until the session ends.
func (s *forwardSession) run() {
	var writing sync.WaitGroup
	var failed error
	writing.Go(func() {
		failed = s.out.Run()
		_ = s.conn.Close()
	})
	err := s.read(frame.NewReader(frame.Limited{Conn: s.conn}))
	s.out.Close()
	_ = s.conn.Close()
	writing.Wait()
	if !errors.Is(failed, frame.ErrClosed) {
		err = failed
	}
	s.end(err)
}

func (s *forwardSession) read(frames *frame.Reader) error {
	for {
		kind, id, payload, err := frames.Next()
		switch {
		case err != nil:
			return err
		case kind == frame.Answer && len(payload) > 0:
			s.answer(id, payload[1:], payload[0] == 1)
		case kind == frame.Abort:
			s.abort(id)
		}
	}
}

// answer adds a part of an answer.
func (s *forwardSession) answer(id uint64, part []byte, last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pending[id]
	if p == nil {
		return
	}
	p.data = append(p.data, part...)
	if len(p.data) > maxAnswerBytes {
		p.data, p.err, last = nil, errLost, true
	}
	if last {
		s.remove(id, p)
	}
}

func (s *forwardSession) abort(id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.pending[id]; p != nil {
		p.err = errLost
		s.remove(id, p)
	}
}

func (s *forwardSession) remove(id uint64, p *pending) {
	delete(s.pending, id)
	close(p.ended)
	s.closeUnused()
}

// end ends all requests. It has an effect once.
func (s *forwardSession) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return
	}
	s.err = err
	s.setRetiring()
	for id, p := range s.pending {
		p.err = fmt.Errorf("%w: %w", errNotConnected, err)
		if s.out.Taken(p.position) {
			p.err = fmt.Errorf("%w: %w", errLost, err)
		}
		s.remove(id, p)
	}
}

// retire ends the session when the requests in it have their answers.
func (s *forwardSession) retire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setRetiring()
	s.closeUnused()
}

func (s *forwardSession) setRetiring() {
	if !s.retiring {
		s.retiring = true
		close(s.retired)
	}
}

func (s *forwardSession) closeUnused() {
	if s.retiring && len(s.pending) == 0 {
		s.out.Close() // run closes the connection, which may block
	}
}

func (s *forwardSession) cause() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// buffers are for requests before they wait to be written.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// roundTrip sends a request and waits for its answer, or for the end of ctx. The error is
// errNoSession or errNotConnected if the request certainly was not sent, otherwise errLost.
func (s *forwardSession) roundTrip(ctx context.Context, out *outgoing) (*answer, error) {
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	id, p, alone, ok := s.begin(ctx, out, buf)
	if !ok {
		return nil, errNoSession
	}
	s.out.Flush(alone)
	select {
	case <-p.ended:
	case <-ctx.Done():
		// It stays pending: the leader answers it nevertheless.
		s.out.AddControl(frame.Cancel, id)
		return nil, fmt.Errorf("%w: %w", errLost, context.Cause(ctx))
	}
	if p.err != nil {
		return nil, p.err
	}
	code, header, body, err := frame.DecodeAnswer(p.data)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errLost, err)
	}
	return &answer{code, header, body}, nil
}

// begin adds a request, unless the session takes no more, or not one of that size. It is alone if no
// other one begins at about that time.
func (s *forwardSession) begin(ctx context.Context, out *outgoing, buf *[]byte) (id uint64, p *pending, alone, ok bool) {
	if len(out.body) >= frame.MaxBytes {
		return 0, nil, false, false
	}
	s.mu.Lock()
	s.lastID++
	id = s.lastID
	s.mu.Unlock()
	if *buf, ok = out.appendFrame(ctx, (*buf)[:0], id); !ok {
		return 0, nil, false, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.retiring || len(s.pending) >= frame.MaxPending {
		return 0, nil, false, false
	}
	p = &pending{ended: make(chan struct{})}
	if p.position, ok = s.out.TryAdd(*buf); !ok {
		return 0, nil, false, false
	}
	alone = !s.recent.Any(func(id uint64) bool { return s.pending[id] != nil })
	s.pending[id] = p
	s.recent.Add(id)
	return id, p, alone, true
}
