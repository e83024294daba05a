package intake_test

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
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
	conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	s := &stalled{framer: http2.NewFramer(conn, conn), conn: conn, next: 1}
	if err := s.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}); err != nil {
		t.Fatal(err)
	}
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
	for _, field := range [][2]string{{":method", method}, {":scheme", "https"}, {":authority", "eventd"}, {":path", path}, {"authorization", "Bearer " + token}} {
		_ = encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]})
	}
	const frame = 16 << 10
	first := block.Next(frame)
	err := s.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: s.next, BlockFragment: first, EndHeaders: block.Len() == 0, EndStream: end})
	for err == nil && block.Len() > 0 {
		fragment := block.Next(frame)
		err = s.framer.WriteContinuation(s.next, block.Len() == 0, fragment)
	}
	if err != nil {
		t.Fatal(err)
	}
	s.next += 2
}

// withLargePages serves a /metrics that is larger than any buffer.
func withLargePages(_ *intake.Options, o *intake.ServerOptions) {
	o.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 1<<20)) })
}

// Requests whose responses are not read are not in flight and have no seat. Their memory
// is limited to the client's share, and their streams end after a timeout.
func TestUnreadAnswersHoldNothingButTheirShare(t *testing.T) {
	who := &bearers{}
	s := serve(t, written(), who.set, withLargePages, func(_ *intake.Options, o *intake.ServerOptions) { o.MaxInFlight = 30 })
	where := listenTLS(t, s)
	metric := func(name string, label ...string) float64 { return s.Metric(t, name, label...) }
	client := stall(t, where)
	const mib = 1 << 20
	for range 30 {
		before := metric("eventd_intake_unwritten_bytes") + mib*metric("eventd_intake_aborted_answers_total", "share")
		client.get(t, "/metrics", "stalled")
		until(t, "it has its answer", func() bool {
			return metric("eventd_intake_unwritten_bytes")+mib*metric("eventd_intake_aborted_answers_total", "share") > before
		})
	}
	if got := metric("eventd_intake_unwritten_bytes"); got < 5*mib || got > 16*mib {
		t.Errorf("unread answers take %v bytes", got)
	}
	if got := metric("eventd_intake_aborted_answers_total", "share"); got == 0 {
		t.Error("nothing was refused to who does not read")
	}
	s.as(t, "stalled", "127.0.0.1", "its-own").Want(t, 201, "") // it has none in flight
	for i := range 50 {
		s.as(t, "reads", "10.0.0.2", fmt.Sprint("a", i)).Want(t, 201, "")
	}
	begun := time.Now()
	until(t, "the streams end", func() bool { return metric("eventd_intake_unwritten_bytes") == 0 })
	if took := time.Since(begun); took > 20*time.Second {
		t.Errorf("the streams ended after %s", took)
	}
}

// A response that fits into the server's buffers is not written either, and the server
// keeps its buffer of a body that is not read.
func TestUnreadAnswersCountThoughTheyAreSmall(t *testing.T) {
	const answers, each = 100, 16 << 10
	who := &bearers{}
	s := serve(t, written(), who.set)
	where := listenTLS(t, s)
	taken := func() float64 { return s.Metric(t, "eventd_intake_unwritten_bytes") }
	client := stall(t, where)
	for range answers / 2 {
		client.get(t, "/version", "stalled")
	}
	until(t, "all have their answers", func() bool { return taken() > answers/2*each })
	before := taken()
	for range answers / 2 {
		client.request(t, "POST", "/nonsense", "stalled", false) // 404, and the body has not ended
	}
	until(t, "all have their answers", func() bool { return taken() > before+answers/2*(each+intake.UploadBufferBytes) })
	_ = client.conn.Close()
	until(t, "the streams end", func() bool { return taken() == 0 })
}

// The server keeps the headers of a request until its response is written.
func TestUnreadAnswersIncludeTheHeadersOfTheirRequests(t *testing.T) {
	who := &bearers{}
	s := serve(t, written(), who.set, withLargePages)
	where := listenTLS(t, s)
	const large = 50 << 10
	var taken []float64
	for _, token := range []string{"small", strings.Repeat("x", large)} {
		before := s.Metric(t, "eventd_intake_unwritten_bytes")
		stall(t, where).get(t, "/metrics", token)
		var now float64
		until(t, "it has its answer", func() bool {
			now = s.Metric(t, "eventd_intake_unwritten_bytes")
			return now > before
		})
		taken = append(taken, now-before)
	}
	if more := taken[1] - taken[0]; more < large-100 || more > 2*large {
		t.Errorf("%v bytes more are taken for %d bytes more of a header", more, large)
	}
}
