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
	// writeTimeout is how long the writing of an answer may take.
	writeTimeout = 10 * time.Second
	// maxUnwrittenBytes is what answers that are being written may take together.
	maxUnwrittenBytes = 32 << 20
	// unwrittenBytes is what each of them takes beside its body: the goroutine, the
	// stream and its buffers.
	unwrittenBytes = 16 << 10
	// UploadBufferBytes is what the server in front of a handler may buffer of a
	// request's body that is not read: MaxUploadBufferPerStream of HTTP/2.
	UploadBufferBytes = 64 << 10
	// An answer is about as large as its request. It may become several times as
	// large by being escaped. /metrics has no request to compare with.
	answerFactor   = 8
	minAnswerLimit = 8 << 20
)

var errAnswerTooLarge = errors.New("the answer is too large")

// unwritten bounds the answers that were made and whose clients do not read them.
//
// A handler writes to a buffer. What a request holds, above all its seat and its
// place among those in flight, is given back before the first byte is written to
// the client. Then the answer has until writeTimeout to be written, and counts
// against the share of its caller, or of the address of a caller that is not
// known. Above it the stream, or with HTTP/1.1 the connection, is aborted.
type unwritten struct {
	shares  *shares.Shares
	limit   int // bytes of one answer
	aborted *prometheus.CounterVec
}

// Why an answer was not written as a whole.
const (
	abortedTooLarge = "too_large"
	abortedShare    = "share"
	abortedWrite    = "write"
)

func newUnwritten(i *Intake) *unwritten {
	return &unwritten{
		shares:  i.unwritten,
		limit:   int(min(max(answerFactor*i.options.MaxBodyBytes, minAnswerLimit), maxUnwrittenBytes/3)),
		aborted: i.metrics.aborted,
	}
}

// around has a handler's answer written when the handler has returned.
func (u *unwritten) around(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		answer := &bufferedAnswer{w: w, limit: u.limit}
		call := &call{response: answer}
		inner := req.WithContext(withCall(req.Context(), call))
		body := &endingBody{ReadCloser: req.Body}
		if body.buffered = req.ProtoMajor == 2 && req.Body != nil && req.ContentLength != 0; body.buffered {
			inner.Body = body
		}
		next.ServeHTTP(answer, inner)
		u.write(w, req, call.flow(req), answer, body.unread())
	})
}

// endingBody is a request's body of which the server buffers what is not read.
type endingBody struct {
	io.ReadCloser
	buffered bool
	ended    atomic.Bool
}

// Read implements io.Reader.
func (b *endingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.ended.Store(true)
	}
	return n, err
}

// unread is what the server may have in memory of it until the stream ends.
func (b *endingBody) unread() int64 {
	if !b.buffered || b.ended.Load() {
		return 0
	}
	return UploadBufferBytes
}

func (u *unwritten) write(w http.ResponseWriter, req *http.Request, f flow, a *bufferedAnswer, unread int64) {
	if a.tooLarge {
		u.abort(abortedTooLarge)
	}
	own, asserted := headerBytes(req) // the server keeps the request until its answer is written
	size := unread + int64(a.body.Len()+unwrittenBytes+own+asserted)
	if !u.shares.Acquire(f, size) {
		u.abort(abortedShare)
	}
	release := func() { u.shares.Release(f, size) }
	serving := req.Context().Value(http.ServerContextKey) != nil
	// The last 4 KiB over HTTP/2 are written after this returns, and the context of the
	// request ends before that.
	//lint:ignore SA1019 nothing else tells when they are written, or the stream is reset
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
	_ = control.SetWriteDeadline(time.Now().Add(writeTimeout)) // not supported in process
	err := a.writeTo(w)
	if serving && req.ProtoMajor < 2 && err == nil {
		err = control.Flush()
	}
	if err != nil && req.Method != http.MethodHead {
		u.aborted.WithLabelValues(abortedWrite).Inc()
	}
}

// abort ends a stream or connection without an answer.
func (u *unwritten) abort(reason string) {
	u.aborted.WithLabelValues(reason).Inc()
	panic(http.ErrAbortHandler)
}

// bufferedAnswer is an answer in memory. It deliberately has no Unwrap: nothing
// behind it can write to the client.
type bufferedAnswer struct {
	w        http.ResponseWriter // for its header
	limit    int
	code     int
	body     bytes.Buffer
	tooLarge bool
}

// Header implements http.ResponseWriter.
func (a *bufferedAnswer) Header() http.Header { return a.w.Header() }

// WriteHeader implements http.ResponseWriter.
func (a *bufferedAnswer) WriteHeader(code int) {
	if a.code == 0 && code >= http.StatusOK {
		a.code = code
	}
}

// Write implements http.ResponseWriter.
func (a *bufferedAnswer) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	if a.body.Len()+len(b) > a.limit {
		a.tooLarge = true
		return 0, errAnswerTooLarge
	}
	return a.body.Write(b)
}

func (a *bufferedAnswer) writeTo(w http.ResponseWriter) error {
	if a.code == 0 {
		a.code = http.StatusOK
	}
	if size := a.body.Len(); size > 0 && w.Header().Get("Content-Length") == "" {
		w.Header().Set("Content-Length", strconv.Itoa(size))
	}
	w.WriteHeader(a.code)
	if a.body.Len() == 0 {
		return nil
	}
	_, err := w.Write(a.body.Bytes())
	return err
}
