package intake_test

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/eventd/eventd/pkg/intake"
)

// stalled is an HTTP/2 client with a flow-control window of 0.
type stalled struct {
	framer *http2.Framer
	conn   net.Conn
	next   uint32
}

func stall(t *testing.T, address string) *stalled {
	t.Helper()
	conn := must(tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}))
	t.Cleanup(func() { _ = conn.Close() })
	_ = must(io.WriteString(conn, http2.ClientPreface))
	s := &stalled{framer: http2.NewFramer(conn, conn), conn: conn, next: 1}
	equal(t, "error", s.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}), nil)
	return s
}

// get makes a request whose response is not read.
func (s *stalled) get(t *testing.T, path, token string) {
	t.Helper()
	s.request(t, "GET", path, token, true)
}

// request makes one that ends with its headers, or whose body does not arrive.
func (s *stalled) request(t *testing.T, method, path, token string, end bool) {
	t.Helper()
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, field := range []hpack.HeaderField{
		{Name: ":method", Value: method}, {Name: ":scheme", Value: "https"}, {Name: ":authority", Value: "eventd"},
		{Name: ":path", Value: path}, {Name: "authorization", Value: "Bearer " + token},
	} {
		_ = encoder.WriteField(field)
	}
	const frame = 16 << 10
	first := block.Next(frame)
	err := s.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: s.next, BlockFragment: first, EndHeaders: block.Len() == 0, EndStream: end})
	for err == nil && block.Len() > 0 {
		fragment := block.Next(frame)
		err = s.framer.WriteContinuation(s.next, block.Len() == 0, fragment)
	}
	equal(t, "error", err, nil)
	s.next += 2
}

func (s *server) unwritten(t *testing.T) float64 {
	t.Helper()
	return s.Metric(t, "eventd_intake_unwritten_bytes")
}

func (s *server) wantNoneUnwritten(t *testing.T) {
	t.Helper()
	until(t, "the streams end", func() bool { return s.unwritten(t) == 0 })
}

// withLargePages serves a /metrics that is larger than any buffer.
var withLargePages = withServer(func(o *intake.ServerOptions) {
	o.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 1<<20)) })
})

// Requests whose responses are not read are not in flight and have no seat. Their memory
// is limited to the client's share, and their streams end after a timeout.
func TestUnreadAnswersHoldNothingButTheirShare(t *testing.T) {
	const mib = 1 << 20
	s := serve(t, written(), (&bearers{}).set, withLargePages, inFlight(30))
	client := stall(t, listenTLS(t, s))
	aborted := func() float64 { return s.Metric(t, "eventd_intake_aborted_answers_total", "share") }
	for range 30 {
		before := s.unwritten(t) + mib*aborted()
		client.get(t, "/metrics", "stalled")
		until(t, "it has its answer", func() bool { return s.unwritten(t)+mib*aborted() > before })
	}
	if got := s.unwritten(t); got < 5*mib || got > 16*mib {
		t.Errorf("unread answers take %v bytes", got)
	}
	if aborted() == 0 {
		t.Error("nothing was refused to who does not read")
	}
	s.as(t, "stalled", "127.0.0.1", "its-own").Want(t, 201, "") // it has none in flight
	for i := range 50 {
		s.as(t, "reads", "10.0.0.2", fmt.Sprint("a", i)).Want(t, 201, "")
	}
	begun := time.Now()
	s.wantNoneUnwritten(t)
	if took := time.Since(begun); took > 20*time.Second {
		t.Errorf("the streams ended after %s", took)
	}
}

// A response that fits into the server's buffers is not written either, and the server
// keeps its buffer of a body that is not read.
func TestUnreadAnswersCountThoughTheyAreSmall(t *testing.T) {
	const half, each = 50, 16 << 10
	s := serve(t, written(), (&bearers{}).set)
	client := stall(t, listenTLS(t, s))
	for range half {
		client.get(t, "/version", "stalled")
	}
	until(t, "all have their answers", func() bool { return s.unwritten(t) > half*each })
	before := s.unwritten(t)
	for range half {
		client.request(t, "POST", "/nonsense", "stalled", false) // 404, and the body has not ended
	}
	until(t, "all have their answers", func() bool { return s.unwritten(t) > before+half*(each+intake.UploadBufferBytes) })
	_ = client.conn.Close()
	s.wantNoneUnwritten(t)
}

// The server keeps the headers of a request until its response is written.
func TestUnreadAnswersIncludeTheHeadersOfTheirRequests(t *testing.T) {
	const large = 50 << 10
	s := serve(t, written(), (&bearers{}).set, withLargePages)
	where := listenTLS(t, s)
	taken := func(token string) float64 {
		before := s.unwritten(t)
		stall(t, where).get(t, "/metrics", token)
		until(t, "it has its answer", func() bool { return s.unwritten(t) > before })
		return s.unwritten(t) - before
	}
	small := taken("small")
	if more := taken(long(large)) - small; more < large-100 || more > 2*large {
		t.Errorf("%v bytes more are taken for %d bytes more of a header", more, large)
	}
}
