package intake

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"

	"github.com/eventd/eventd/internal/relay/frame"
)

const (
	// ForwardingPath is where a replica accepts forwarding sessions: a POST over HTTP/1.1 with
	// "Upgrade: ForwardingProtocol", authenticated as a forwarded request. After the answer
	// 101, the connection has the frames of internal/relay/frame in both directions.
	ForwardingPath     = "/eventd/v1/forward"
	ForwardingProtocol = "eventd-forward"
	// peerHeaders begin all headers between replicas.
	peerHeaders = "Eventd-"
	// answerChunk is how much of an answer is in a frame, so that a large one does not delay
	// the others.
	answerChunk = 16 << 10
	// accepted is the answer with which a session begins.
	accepted = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + ForwardingProtocol + "\r\n\r\n"
)

var errSessionProtocol = errors.New("the replica does not keep to the protocol")

// forwardings serves the forwarding sessions of other replicas. A session is authenticated
// behind the same filters and limits as a forwarded request. It carries reports only:
// requests that would be recorded, which the other replica has authenticated and authorized.
// Each of them counts as in flight and gets a seat in the flow of its caller, as all others.
//
// A session ends with its connection, or when its token is no longer accepted. Its requests
// are cancelled then.
type forwardings struct {
	handler   http.Handler // of the requests
	forwarder Forwarder
	open      chan struct{} // has a value for each session
}

func newForwardings(routes http.Handler, o *ServerOptions, control *flowControl) *forwardings {
	return &forwardings{
		handler:   newForwardedPath(routes, o, control),
		forwarder: o.Forwarder,
		open:      make(chan struct{}, maxSessions),
	}
}

// begin is a filter behind the authentication. It lets unreadResponses.buffered run a session
// in place of a response.
func (f *forwardings) begin(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if !Forwarded(req) || req.ProtoMajor != 1 || req.Method != http.MethodPost || req.URL.Path != ForwardingPath ||
			req.Header.Get("Upgrade") != ForwardingProtocol {
			next.ServeHTTP(w, req)
			return
		}
		call := callOf(req.Context())
		session := func(w http.ResponseWriter, req *http.Request) { f.run(w, req, call.token) }
		call.session.Store(&session)
	})
}

// run serves a session until its connection or its token ends it.
func (f *forwardings) run(w http.ResponseWriter, req *http.Request, token string) {
	select {
	case f.open <- struct{}{}:
		defer func() { <-f.open }()
	default:
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	conn, buffer, err := http.NewResponseController(w).Hijack()
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	// Nothing of the connection's own request is for those in it.
	ctx, cancel := context.WithCancelCause(klog.NewContext(context.Background(), klog.FromContext(req.Context())))
	context.AfterFunc(ctx, func() { _ = conn.Close() })
	limited := frame.Limited{Conn: conn}
	s := &forwardingSession{ctx: ctx, handler: f.handler, from: req.RemoteAddr, out: frame.NewWriter(limited), running: make(map[uint64]context.CancelFunc)}
	var ends sync.WaitGroup
	ends.Go(func() { reviewPeer(ctx, cancel, f.forwarder, token) })
	err = errSessionProtocol
	if buffer.Reader.Buffered() == 0 {
		_, err = io.WriteString(limited, accepted)
	}
	if err == nil { // no frame is written before
		ends.Go(func() { cancel(s.out.Run()) })
		err = s.serve(limited)
	}
	cancel(err)
	klog.FromContext(ctx).V(2).Info("A forwarding session has ended", "replica", req.RemoteAddr, "cause", context.Cause(ctx))
	s.out.Close()
	s.requests.Wait()
	ends.Wait()
}

// forwardingSession is the leader's end of a session.
type forwardingSession struct {
	ctx      context.Context // of all requests
	handler  http.Handler
	from     string // address of the other replica
	out      *frame.Writer
	requests sync.WaitGroup

	mu      sync.Mutex
	running map[uint64]context.CancelFunc // by the id of the request
	recent  frame.Recent                  // of them
}

// serve reads requests. It does not wait for them, so that one that hangs delays no other.
func (s *forwardingSession) serve(conn io.Reader) error {
	frames := frame.NewReader(conn)
	for {
		kind, id, payload, err := frames.Next()
		if err != nil {
			return err
		}
		switch kind {
		case frame.Ping:
		case frame.Request:
			if err := s.begin(id, payload); err != nil {
				return err
			}
		case frame.Cancel:
			s.cancel(id)
		default:
			return errSessionProtocol
		}
	}
}

// begin handles a request, on a goroutine of its own.
func (s *forwardingSession) begin(id uint64, payload []byte) error {
	received, err := frame.DecodeRequest(payload)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(s.ctx, min(received.Timeout, requestTimeout))
	if err := s.add(id, cancel); err != nil {
		cancel()
		return err
	}
	s.requests.Go(func() {
		w := &frameResponse{id: id, out: s.out, header: make(http.Header), ending: func() bool { return s.remove(id) }}
		defer w.finish()
		defer func() {
			if p := recover(); p != nil && p != http.ErrAbortHandler { // else the response was too large, or late
				klog.FromContext(ctx).Error(nil, "Answering a forwarded request panicked", "panic", p)
			}
		}()
		s.handle(ctx, w, received)
		w.complete = true
	})
	return nil
}

func (s *forwardingSession) handle(ctx context.Context, w http.ResponseWriter, received *frame.Forwarded) {
	req, err := s.request(ctx, received)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	s.handler.ServeHTTP(w, req)
}

func (s *forwardingSession) add(id uint64, cancel context.CancelFunc) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.running[id]; known || len(s.running) >= frame.MaxPending {
		return fmt.Errorf("%w: request %d of %d", errSessionProtocol, id, len(s.running))
	}
	s.running[id] = cancel
	s.recent.Add(id)
	return nil
}

func (s *forwardingSession) cancel(id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cancel, ok := s.running[id]; ok {
		cancel()
	}
}

// remove reports whether the request was alone: no other one has begun at about that time and is running.
func (s *forwardingSession) remove(id uint64) (alone bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running[id]()
	delete(s.running, id)
	return !s.recent.Any(func(id uint64) bool { return s.running[id] != nil })
}

// request returns what the other replica has received. Headers between replicas are not from
// there: the mark of a forwarded request is set here.
func (s *forwardingSession) request(ctx context.Context, f *frame.Forwarded) (*http.Request, error) {
	u, err := url.ParseRequestURI(f.URI)
	if err != nil {
		return nil, err
	}
	for name := range f.Header {
		if strings.HasPrefix(name, peerHeaders) {
			delete(f.Header, name)
		}
	}
	f.Header[AssertedUserHeader] = []string{f.User.GetName()}
	req := &http.Request{
		Method: f.Method, URL: u, RequestURI: f.URI, Host: f.Host, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: f.Header, ContentLength: int64(len(f.Body)), RemoteAddr: s.from,
	}
	return withBody(req.WithContext(request.WithUser(ctx, f.User)), f.Body, 0), nil
}

// frameResponse writes an answer as frames. It is used by one goroutine.
type frameResponse struct {
	id  uint64
	out *frame.Writer
	// ending is called once, before the other replica may know that the request has ended. It reports
	// whether nobody else is answered soon.
	ending   func() (alone bool)
	header   http.Header
	code     int
	unsent   []byte // of the encoded answer
	written  int    // bytes of the body
	complete bool   // the handler has returned
	ended    bool
}

// Header implements http.ResponseWriter.
func (r *frameResponse) Header() http.Header { return r.header }

// WriteHeader implements http.ResponseWriter.
func (r *frameResponse) WriteHeader(code int) {
	if r.code == 0 && code >= http.StatusOK {
		r.code = code
		r.unsent = frame.AppendAnswerHead(make([]byte, 0, answerChunk/8), code, r.header)
	}
}

// Write implements http.ResponseWriter. It waits while the other replica does not read.
func (r *frameResponse) Write(b []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	r.written += len(b)
	if len(r.unsent)+len(b) <= answerChunk { // so that a usual answer is one frame
		r.unsent = append(r.unsent, b...)
	} else {
		if len(r.unsent) > 0 {
			if err := r.send(false); err != nil {
				return 0, err
			}
		}
		r.unsent = slices.Clip(b) // not copied: send keeps none of it
	}
	if size := r.header.Get("Content-Length"); size != "" && size == strconv.Itoa(r.written) {
		return len(b), r.end()
	}
	return len(b), r.send(false)
}

// end adds the last frame of the answer.
func (r *frameResponse) end() error {
	if r.ended {
		return nil
	}
	r.ended = true
	return r.send(true)
}

// finish ends the answer when the handler has returned, or has panicked.
func (r *frameResponse) finish() {
	if !r.complete && !r.ended {
		r.ended = true
		r.ending()
		r.out.AddControl(frame.Abort, r.id)
		return
	}
	r.WriteHeader(http.StatusOK)
	_ = r.end() // the session has ended
}

// send adds what is not sent. Other answers are between its frames.
func (r *frameResponse) send(last bool) error {
	for {
		chunk := r.unsent[:min(len(r.unsent), answerChunk)]
		r.unsent = r.unsent[len(chunk):]
		var ending func() (alone bool)
		if last && len(r.unsent) == 0 {
			ending = r.ending
		}
		if err := r.out.AddAnswer(r.id, chunk, ending); err != nil {
			return err
		}
		if len(r.unsent) == 0 {
			return nil
		}
	}
}
