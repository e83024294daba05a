package app

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	xhttp2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/eventd/eventd/pkg/intake"
	"github.com/eventd/eventd/test/await"
)

// edge is the server, with little behind it.
type edge struct {
	address  string
	listener *boundedListener
}

func startEdge(t *testing.T, most int) *edge {
	t.Helper()
	o := NewOptions()
	o.MaxConnections = most
	o.SecureServing.BindAddress, o.SecureServing.BindPort = net.IPv4zero, 0
	s, err := newServing(o, prometheus.NewPedanticRegistry())
	if err != nil {
		t.Fatal(err)
	}
	stop, err := s.start(http.NotFoundHandler(), time.Second, func() int { return 0 })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { receive(t, "the server ends", stop()) })
	_, port, err := net.SplitHostPort(s.info.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return &edge{address: net.JoinHostPort("127.0.0.1", port), listener: s.listener}
}

// dial connects from an address of this host.
func (e *edge) dial(t *testing.T, from string) net.Conn {
	t.Helper()
	conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).Dial("tcp", e.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// dialTLS fails if the server has no room.
func (e *edge) dialTLS(t *testing.T, from, protocol string) (*tls.Conn, error) {
	t.Helper()
	conn := tls.Client(e.dial(t, from), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{protocol}})
	return conn, conn.HandshakeContext(t.Context())
}

// fill connects from an address until the server has no room for it.
func (e *edge) fill(t *testing.T, from string) (conns []net.Conn) {
	t.Helper()
	for {
		conn, err := e.dialTLS(t, from, "http/1.1")
		if err != nil {
			return conns
		}
		conns = append(conns, conn)
	}
}

// One address has at most a third of the connections. Others can connect, and so can it
// after it has closed one.
func TestAddressThatOpensConnectionsKeepsNoOtherOut(t *testing.T) {
	e := startEdge(t, 120)
	conns := e.fill(t, "127.0.0.2")
	if len(conns) != 40 {
		t.Errorf("an address has %d connections of 120, want 40", len(conns))
	}
	if got := testutil.ToFloat64(e.listener.refused); got != 1 {
		t.Errorf("%v were refused, want 1", got)
	}
	for range 10 {
		if _, err := e.dialTLS(t, "127.0.0.3", "h2"); err != nil {
			t.Errorf("another address is refused: %v", err)
		}
	}
	for _, conn := range conns[:20] {
		_ = conn.Close()
	}
	await.Until(t, "the connections are removed", func() bool { return e.listener.shares.InUse() == 30 })
	if _, err := e.dialTLS(t, "127.0.0.2", "h2"); err != nil {
		t.Errorf("an address that has closed connections is refused: %v", err)
	}
}

// Connections without a handshake end.
func TestConnectionWithoutAHandshakeEnds(t *testing.T) {
	e := startEdge(t, 100)
	conn := e.dial(t, "127.0.0.1")
	begun := time.Now()
	if err := conn.SetReadDeadline(begun.Add(2 * handshakeTimeout)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a connection without a handshake is open after %s", time.Since(begun))
	}
	await.Until(t, "the connection is removed", func() bool { return e.listener.shares.InUse() == 0 })
}

func inUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // the first leaves objects with finalizers to the second
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// The memory of a connection that is idle or sends an incomplete request. It includes
// the client, which is in this process too.
func TestConnectionsTakeNoMoreThanIsSaid(t *testing.T) {
	const each = 50
	http2 := func(t *testing.T, e *edge) *xhttp2.Framer {
		conn, err := e.dialTLS(t, "127.0.0.1", "h2")
		if err == nil {
			_, err = io.WriteString(conn, xhttp2.ClientPreface)
		}
		framer := xhttp2.NewFramer(conn, conn)
		if err == nil {
			err = framer.WriteSettings()
		}
		if err != nil {
			t.Fatal(err)
		}
		return framer
	}
	http1 := func(t *testing.T, e *edge, headers string) {
		conn, err := e.dialTLS(t, "127.0.0.1", "http/1.1")
		if err == nil {
			_, err = io.WriteString(conn, "GET / HTTP/1.1\r\n"+headers)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	// unfinished sends the headers of a request that do not end.
	unfinished := func(t *testing.T, e *edge, block []byte) {
		const frame = 16_000
		framer := http2(t, e)
		err := framer.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: 1, BlockFragment: block[:min(frame, len(block))]})
		for block = block[min(frame, len(block)):]; err == nil && len(block) > 0; block = block[min(frame, len(block)):] {
			err = framer.WriteContinuation(1, false, block[:min(frame, len(block))])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		open func(t *testing.T, e *edge)
		most int64
	}{
		"idle": {func(t *testing.T, e *edge) { http2(t, e) }, ConnectionBytes},
		"half of a handshake": {func(t *testing.T, e *edge) {
			conn := e.dial(t, "127.0.0.1")
			for hello := append([]byte{1, 0, 0xff, 0xf0}, make([]byte, 65_000)...); len(hello) > 0; {
				n := min(16_000, len(hello))
				if _, err := conn.Write(append([]byte{22, 3, 1, byte(n >> 8), byte(n)}, hello[:n]...)); err != nil {
					t.Fatal(err)
				}
				hello = hello[n:]
			}
		}, MaxConnectionBytes},
		"HTTP/1.1, many headers": {func(t *testing.T, e *edge) { http1(t, e, strings.Repeat("a: b\r\n", intake.MaxHeaderBytes/6)) }, MaxConnectionBytes},
		"HTTP/1.1, a long one":   {func(t *testing.T, e *edge) { http1(t, e, "a: "+strings.Repeat("b", intake.MaxHeaderBytes)) }, MaxConnectionBytes},
		"HTTP/2, many headers": {func(t *testing.T, e *edge) {
			unfinished(t, e, bytes.Repeat([]byte{0x80 | 16}, intake.MaxHeaderBytesHTTP2/60)) // each is accept-encoding
		}, MaxConnectionBytes},
		"HTTP/2, a long one": {func(t *testing.T, e *edge) {
			var block bytes.Buffer
			_ = hpack.NewEncoder(&block).WriteField(hpack.HeaderField{Name: "x", Value: strings.Repeat("\x01", intake.MaxHeaderBytesHTTP2), Sensitive: true})
			unfinished(t, e, block.Bytes()[:block.Len()-10])
		}, MaxConnectionBytes},
		"HTTP/2, half of a frame": {func(t *testing.T, e *edge) {
			if err := http2(t, e).WriteRawFrame(0xfe, 0, 0, make([]byte, frameBytes)); err != nil {
				t.Fatal(err)
			}
		}, ConnectionBytes + frameBytes},
	} {
		t.Run(name, func(t *testing.T) {
			e := startEdge(t, 3*each)
			before := inUse()
			for range each {
				c.open(t, e)
			}
			var took int64
			for range 10 { // the server reads in several steps
				time.Sleep(50 * time.Millisecond)
				took = max(took, (inUse()-before)/each)
			}
			if open := e.listener.shares.InUse(); open != each {
				t.Fatalf("%d of %d connections are open", open, each)
			}
			t.Logf("%d KiB each", took>>10)
			if took > c.most {
				t.Errorf("each takes %d KiB, more than %d", took>>10, c.most>>10)
			}
			if took < c.most/10 {
				t.Errorf("each takes only %d KiB of %d", took>>10, c.most>>10)
			}
		})
	}
}
