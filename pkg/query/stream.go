package query

import (
	"bytes"
	"errors"
	"net/http"
	"sync"
	"time"
)

const (
	// writeTimeout is for one write to a client that reads nothing.
	writeTimeout = 10 * time.Second
	// maxBuffered is how much is encoded before it is written.
	maxBuffered = 32 << 10
	sseType     = "text/event-stream"
	// sseRetry is after how long a browser connects again, in milliseconds.
	sseRetry = "retry: 1000\n\n"
)

// stream sends frames to a client. One goroutine uses it, and any may close it.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	lines                // encoded, and for this client alone
	gzip    *gzipStream  // nil: not compressed
	ready   bytes.Buffer // what is written next
	timeout *time.Timer  // of a write; stopped while nothing is written

	mu      sync.Mutex // guards the fields below
	writing time.Time  // when a write has begun; zero while nothing is written
	closed  bool
}

var errClosed = errors.New("the stream is closed")

func newStream(w http.ResponseWriter, sse, compressed bool) *stream {
	s := &stream{w: w, control: http.NewResponseController(w), lines: lines{sse: sse}}
	if compressed {
		s.gzip = &gzipStream{}
	}
	s.timeout = time.AfterFunc(writeTimeout, s.closeIfBlocked)
	s.timeout.Stop()
	return s
}

// begin writes the header.
func (s *stream) begin() error {
	contentType := "application/json"
	if s.sse {
		contentType = sseType
		s.WriteString(sseRetry)
	}
	h := s.w.Header()
	if s.gzip != nil {
		h.Set("Content-Encoding", gzipEncoding)
		s.gzip.begin(&s.ready)
	}
	h.Set("Content-Type", contentType)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Accel-Buffering", "no") // of proxies
	s.w.WriteHeader(http.StatusOK)
	s.addLines()
	err := s.write(s.ready.Bytes()) // the header, though there may be nothing else
	s.ready.Reset()
	return err
}

// addLines has the lines of this client written next.
func (s *stream) addLines() {
	if s.gzip != nil {
		s.gzip.add(&s.ready, s.Bytes())
	} else {
		s.ready.Write(s.Bytes())
	}
	if s.Reset(); s.Cap() > 2*maxBuffered {
		s.Buffer = bytes.Buffer{} // of a large frame
	}
}

// sendBatch sends what others are sent, too. A large batch is not copied: there may be 64 streams.
func (s *stream) sendBatch(b *batch) error {
	s.addLines()
	text := b.plain
	if s.gzip != nil {
		packed, err := b.packed()
		if err != nil {
			return err
		}
		s.gzip.count(b.plain)
		text = packed
	}
	if len(text) < maxBuffered {
		s.ready.Write(text)
		return s.flushFull()
	}
	if err := s.flush(); err != nil {
		return err
	}
	return s.writeParts(text)
}

// flushFull writes what is encoded if there is much.
func (s *stream) flushFull() error {
	if s.Len()+s.ready.Len() < maxBuffered {
		return nil
	}
	return s.flush()
}

// fail sends the error with which a watch ends.
func (s *stream) fail(err error) { _ = s.send(frameError, statusOf(err), "") }

// end writes what is encoded, and the end of the stream.
func (s *stream) end() {
	if s.addLines(); s.gzip != nil {
		s.gzip.end(&s.ready)
	}
	_ = s.flush()
}

// flush writes what is encoded. It returns when the connection has accepted it, and fails after
// writeTimeout.
func (s *stream) flush() error {
	s.addLines()
	if err := s.writeParts(s.ready.Bytes()); err != nil {
		return err
	}
	if s.ready.Reset(); s.ready.Cap() > 2*maxBuffered {
		s.ready = bytes.Buffer{}
	}
	return nil
}

// writeParts writes bytes in parts, so that each has its time.
func (s *stream) writeParts(rest []byte) error {
	for len(rest) > 0 {
		n := len(rest)
		if n > 2*maxBuffered {
			n = maxBuffered
		}
		if err := s.write(rest[:n]); err != nil {
			return err
		}
		rest = rest[n:]
	}
	return nil
}

// write writes and flushes bytes. A timer ends it after writeTimeout: a deadline of the connection would have to be
// set and removed for each write, and cost more than to write.
func (s *stream) write(p []byte) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return errClosed
	}
	s.writing = time.Now()
	s.mu.Unlock()
	s.timeout.Reset(writeTimeout)
	defer s.written()
	if _, err := s.w.Write(p); err != nil {
		return err
	}
	return s.control.Flush()
}

func (s *stream) written() {
	s.timeout.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writing = time.Time{}
}

// closeIfBlocked closes the stream of a write that takes too long. The timer may have fired for the one before.
func (s *stream) closeIfBlocked() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.writing.IsZero() && time.Since(s.writing) >= writeTimeout {
		s.closeLocked()
	}
}

// close ends a write at once, and refuses later ones. It may be called by any goroutine.
func (s *stream) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closeLocked()
}

func (s *stream) closeLocked() {
	s.closed = true
	if !s.writing.IsZero() {
		_ = s.control.SetWriteDeadline(time.Now().Add(-time.Second)) // fails in process, where there is none
	}
}
