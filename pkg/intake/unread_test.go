package intake_test

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"testing"

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

// request makes a request that ends with its headers, or whose body does not arrive.
func (s *stalled) request(t *testing.T, method, path string, end bool) {
	t.Helper()
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, field := range []hpack.HeaderField{
		{Name: ":method", Value: method}, {Name: ":scheme", Value: "https"}, {Name: ":authority", Value: "eventd"},
		{Name: ":path", Value: path}, {Name: "authorization", Value: "Bearer stalled"},
	} {
		_ = encoder.WriteField(field)
	}
	err := s.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: s.next, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: end})
	equal(t, "error", err, nil)
	s.next += 2
}

func (s *server) unwritten(t *testing.T) float64 {
	t.Helper()
	return s.Metric(t, "eventd_intake_unwritten_bytes")
}

// A response that fits into the server's buffers is not written either, and the server
// keeps its buffer of a body that is not read. None of these requests is in flight.
func TestUnreadAnswersCountThoughTheyAreSmall(t *testing.T) {
	const half, each = 50, 16 << 10
	s := serve(t, written(), (&bearers{}).set, inFlight(30))
	client := stall(t, listenTLS(t, s))
	for range half {
		client.request(t, "GET", "/version", true)
	}
	until(t, "all have their answers", func() bool { return s.unwritten(t) > half*each })
	s.as(t, "stalled", "127.0.0.1", "its-own").Want(t, 201, "") // it has none in flight
	before := s.unwritten(t)
	for range half {
		client.request(t, "POST", "/nonsense", false) // 404, and the body has not ended
	}
	until(t, "all have their answers", func() bool { return s.unwritten(t) > before+half*(each+intake.UploadBufferBytes) })
	_ = client.conn.Close()
	until(t, "the streams end", func() bool { return s.unwritten(t) == 0 })
}
