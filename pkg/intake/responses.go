package intake

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/eventd/eventd/internal/shares"
)

const (
	// writeTimeout is the timeout for writing a response.
	writeTimeout = 10 * time.Second
	// DefaultMaxUnreadBytes is the default of Options.MaxUnreadBytes.
	DefaultMaxUnreadBytes = 32 << 20
	// unreadOverhead is the memory of one of them beside its body: the goroutine, the
	// stream and its buffers.
	unreadOverhead = 16 << 10
	// minUnreadBytes is what must be available to a caller for a request to be handled. The rest is for refusals.
	minUnreadBytes = 4 * unreadOverhead
	// UploadBufferBytes is how much of a request's body the server in front of a handler
	// may buffer: MaxUploadBufferPerStream of HTTP/2. Clients may send as much before they know of another limit.
	UploadBufferBytes = 64 << 10
	// discardTimeout is for how long the rest of a body is awaited that no handler has read, and maxDiscarded how
	// much of it is read: as much as by the server.
	discardTimeout = time.Second
	maxDiscarded   = 256 << 10
)

var errResponseTooLarge = errors.New("the response is too large")

// unreadResponses limits the memory of responses that clients have not read.
//
// A handler writes to a buffer. The request releases its seat and leaves the requests in
// flight before the first byte is written to the client. Then the response must be
// written within writeTimeout. Its memory counts against the share of its caller, or of
// the address of an unknown caller. Above the share, the stream or the HTTP/1.1
// connection is aborted; shortly below it, requests are refused before they are handled.
type unreadResponses struct {
	shares  *shares.Shares
	queries *shares.Shares // of answers to queries
	limit   int            // bytes of one response
	aborted *prometheus.CounterVec
}

// Reasons for an incomplete response.
const (
	abortedTooLarge = "too_large"
	abortedShare    = "share"
	abortedWrite    = "write"
)

func newUnreadResponses(i *Intake) *unreadResponses {
	return &unreadResponses{
		shares:  i.unread,
		limit:   int(i.options.MaxUnreadBytes / 3),
		aborted: i.metrics.aborted,
	}
}

// buffered returns a handler that writes the response of next when next has returned, or
// runs the session that next has begun instead.
func (u *unreadResponses) buffered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		u.serve(w, req, next)
	})
}

func (u *unreadResponses) serve(w http.ResponseWriter, req *http.Request, next http.Handler) {
	call := new(call)
	response, body := &call.response, &call.body
	response.w, response.limit = w, u.limit
	inner := req.WithContext(withCall(req.Context(), call))
	if req.Body != nil && req.ContentLength != 0 {
		body.ReadCloser = req.Body
		inner.Body = body
		if req.ProtoMajor == 2 {
			body.buffer = UploadBufferBytes
			if n := req.ContentLength; n >= 0 { // the server resets a stream with more
				body.buffer = min(body.buffer, n)
			}
		}
	}
	next.ServeHTTP(response, inner)
	if session := call.session.Load(); session != nil && response.code == 0 { // it was not too late
		(*session)(w, req)
		return
	}
	within := u.shares
	if call.query.Load() {
		within = u.queries
	}
	u.write(w, req, within, call.charged(req), response, body)
}

// trackedBody is the body of a request. The server buffers the part that is not read.
type trackedBody struct {
	io.ReadCloser
	buffer int64 // at most, of the server
	ended  atomic.Bool
}

// Read implements io.Reader.
func (b *trackedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.ended.Store(true)
	}
	return n, err
}

// unread is the memory that the server may use for it until the stream ends.
func (b *trackedBody) unread() int64 {
	if b.ended.Load() {
		return 0
	}
	return b.buffer
}

// discard reads the rest of a body over HTTP/1.1. The server would do so before it writes the response, and wait for
// as long as the client keeps the connection open. If the rest does not arrive soon, or is large, the server closes
// the connection after the response.
func (b *trackedBody) discard(w http.ResponseWriter, req *http.Request, control *http.ResponseController) {
	if req.Header.Get("Expect") == "" { // else to read it would ask for it
		_ = control.SetReadDeadline(time.Now().Add(discardTimeout)) // of a handler that still reads it, too
		if _, err := io.CopyN(io.Discard, b, maxDiscarded); err == io.EOF {
			_ = control.SetReadDeadline(time.Time{})
			return
		}
	}
	w.Header().Set("Connection", "close")
	_ = control.SetReadDeadline(time.Now())
}

func (u *unreadResponses) write(w http.ResponseWriter, req *http.Request, within *shares.Shares, f flow, r *bufferedResponse, body *trackedBody) {
	if r.tooLarge {
		u.abort(abortedTooLarge)
	}
	own, asserted := headerBytes(req) // the server keeps the request until the response is written
	size := body.unread() + int64(r.body.Len()+unreadOverhead+own+asserted)
	if !within.Acquire(f, size) {
		u.abort(abortedShare)
	}
	release := func() { within.Release(f, size) }
	serving := req.Context().Value(http.ServerContextKey) != nil
	// With HTTP/2 the last 4 KiB are written after this function has returned, and the
	// request's context ends before that.
	//lint:ignore SA1019 the only signal that they are written, or the stream is reset
	if stream, ok := w.(http.CloseNotifier); ok && serving && req.ProtoMajor == 2 {
		closed := stream.CloseNotify()
		go func() {
			<-closed
			release()
		}()
	} else {
		defer release()
	}
	control := http.NewResponseController(w)
	if serving && req.ProtoMajor < 2 && body.ReadCloser != nil && !body.ended.Load() {
		body.discard(w, req, control)
	}
	_ = control.SetWriteDeadline(time.Now().Add(writeTimeout)) // fails in process, where there is none
	err := r.writeTo(w)
	if serving && req.ProtoMajor < 2 && err == nil {
		err = control.Flush()
	}
	if err != nil && req.Method != http.MethodHead {
		u.aborted.WithLabelValues(abortedWrite).Inc()
	}
}

// abort ends a stream or connection without a response.
func (u *unreadResponses) abort(reason string) {
	u.aborted.WithLabelValues(reason).Inc()
	panic(http.ErrAbortHandler)
}

// bufferedResponse is a response in memory. It has no Unwrap, so that no handler can
// write to the client.
type bufferedResponse struct {
	w        http.ResponseWriter // for its header
	limit    int
	code     int
	body     bytes.Buffer
	tooLarge bool
}

// Header implements http.ResponseWriter.
func (r *bufferedResponse) Header() http.Header { return r.w.Header() }

// WriteHeader implements http.ResponseWriter.
func (r *bufferedResponse) WriteHeader(code int) {
	if r.code == 0 && code >= http.StatusOK {
		r.code = code
	}
}

// Write implements http.ResponseWriter.
func (r *bufferedResponse) Write(b []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	if r.body.Len()+len(b) > r.limit {
		r.tooLarge = true
		return 0, errResponseTooLarge
	}
	return r.body.Write(b)
}

func (r *bufferedResponse) writeTo(w http.ResponseWriter) error {
	r.WriteHeader(http.StatusOK) // unless there is a code
	if size := r.body.Len(); size > 0 && w.Header().Get("Content-Length") == "" {
		w.Header().Set("Content-Length", strconv.Itoa(size))
	}
	w.WriteHeader(r.code)
	if r.body.Len() == 0 {
		return nil
	}
	_, err := w.Write(r.body.Bytes())
	return err
}
