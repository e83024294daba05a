package query

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/eventd/eventd/pkg/query/v1alpha1"
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

// The types of frames, as in watches of Kubernetes.
const (
	frameAdded    = "ADDED"
	frameModified = "MODIFIED"
	frameBookmark = "BOOKMARK"
	frameError    = "ERROR"
)

// frame is a metav1.WatchEvent, whose object is encoded with it.
type frame struct {
	Type   string `json:"type"`
	Object any    `json:"object"`
}

// stream sends frames to a client: lines of JSON, or server-sent events. One goroutine uses it, and any may close it.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	sse     bool
	buffer  bytes.Buffer // what is encoded and not written
	timeout *time.Timer  // of a write; stopped while nothing is written

	mu      sync.Mutex // guards the fields below
	writing time.Time  // when a write has begun; zero while nothing is written
	closed  bool
}

var errClosed = errors.New("the stream is closed")

func newStream(w http.ResponseWriter, sse bool) *stream {
	s := &stream{w: w, control: http.NewResponseController(w), sse: sse}
	s.timeout = time.AfterFunc(writeTimeout, s.closeIfBlocked)
	s.timeout.Stop()
	return s
}

// begin writes the header.
func (s *stream) begin() error {
	contentType := "application/json"
	if s.sse {
		contentType = sseType
		s.buffer.WriteString(sseRetry)
	}
	h := s.w.Header()
	h.Set("Content-Type", contentType)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Accel-Buffering", "no") // of proxies
	s.w.WriteHeader(http.StatusOK)
	err := s.write(s.buffer.Bytes()) // the header, though there may be nothing else
	s.buffer.Reset()
	return err
}

// send encodes a frame, which flush writes. id is the cursor from which a browser resumes, if it is not
// empty.
func (s *stream) send(kind string, object any, id string) error {
	data, err := json.Marshal(frame{kind, object}) // one line
	if err != nil {
		return err
	}
	return s.sendLine(id, data)
}

// itemPrefix returns the beginning of a frame with an added TailItem, up to its event or step. It is the same for
// all items with one cursor, and to encode it takes longer than to send an item.
func itemPrefix(cursor, field string) ([]byte, error) {
	item, err := json.Marshal(v1alpha1.TailItem{TypeMeta: typeMeta("TailItem"), ResourceVersion: cursor})
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, `{"type":%q,"object":%s,%q:`, frameAdded, item[:len(item)-1], field), nil
}

// sendItem sends an item that is encoded, after its prefix.
func (s *stream) sendItem(prefix []byte, cursor string, item []byte) error {
	return s.sendLine(cursor, prefix, item, []byte("}}"))
}

// sendLine sends a frame that is encoded, in parts.
func (s *stream) sendLine(id string, parts ...[]byte) error {
	if s.sse {
		if id != "" {
			s.buffer.WriteString("id: " + id + "\n")
		}
		s.buffer.WriteString("data: ")
	}
	for _, part := range parts {
		s.buffer.Write(part)
	}
	s.buffer.WriteByte('\n')
	if s.sse {
		s.buffer.WriteByte('\n')
	}
	if s.buffer.Len() < maxBuffered {
		return nil
	}
	return s.flush()
}

// bookmark sends a cursor, and how many steps were lost.
func (s *stream) bookmark(resourceVersion string, lost int64) error {
	item := v1alpha1.TailItem{TypeMeta: typeMeta("TailItem"), ResourceVersion: resourceVersion, Lost: lost}
	return s.send(frameBookmark, item, resourceVersion)
}

// fail sends the error with which a watch ends.
func (s *stream) fail(err error) {
	if s.send(frameError, statusOf(err), "") == nil {
		_ = s.flush()
	}
}

// flush writes what is encoded. It returns when the connection has accepted it, and fails after
// writeTimeout.
func (s *stream) flush() error {
	if s.buffer.Len() == 0 {
		return nil
	}
	err := s.write(s.buffer.Bytes())
	if s.buffer.Reset(); s.buffer.Cap() > 2*maxBuffered {
		s.buffer = bytes.Buffer{} // of a large frame
	}
	return err
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
