package app

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/metrics"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	xhttp2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"

	"github.com/eventd/eventd/pkg/intake"
	"github.com/eventd/eventd/test/await"
)

// serve serves on an address until the test ends, with nothing behind it.
func serve(t *testing.T, address string, o *Options) *serving {
	t.Helper()
	o.SecureServing.BindPort, o.SecureServing.BindAddress = 0, net.ParseIP(address)
	s, err := newServing(o, prometheus.NewPedanticRegistry())
	if err != nil {
		t.Fatal(err)
	}
	stop, err := s.start(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		http.NotFound(w, req)
	}), time.Second, func() int { return 0 })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { receive(t, "the server ends", stop()) })
	return s
}

// edge is the server as its clients see it.
type edge struct {
	address  string
	listener *boundedListener
}

func startEdge(t *testing.T, most int) *edge {
	t.Helper()
	o := NewOptions()
	o.MaxConnections, o.SecureServing.ServerCert.FixtureDirectory = most, certificates
	s := serve(t, "0.0.0.0", o)
	port := s.info.Listener.Addr().(*net.TCPAddr).Port
	return &edge{address: fmt.Sprint("127.0.0.1:", port), listener: s.listener}
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

// open connects and sends a text.
func (e *edge) open(t *testing.T, protocol, text string) net.Conn {
	t.Helper()
	conn, err := e.dialTLS(t, "127.0.0.1", protocol)
	if err == nil {
		_, err = io.WriteString(conn, text)
	}
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// openHTTP2 connects and sends what every client of HTTP/2 begins with.
func (e *edge) openHTTP2(t *testing.T, settings ...xhttp2.Setting) *xhttp2.Framer {
	t.Helper()
	conn := e.open(t, "h2", xhttp2.ClientPreface)
	framer := xhttp2.NewFramer(conn, conn)
	if err := framer.WriteSettings(settings...); err != nil {
		t.Fatal(err)
	}
	return framer
}

// One address has at most a third of the connections. Others can connect, and so can it
// after it has closed one.
func TestAddressThatOpensConnectionsKeepsNoOtherOut(t *testing.T) {
	e := startEdge(t, 120)
	var conns []net.Conn
	for {
		conn, err := e.dialTLS(t, "127.0.0.2", "http/1.1")
		if err != nil {
			break
		}
		conns = append(conns, conn)
	}
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

// sendHello sends the beginning of a ClientHello.
func sendHello(t *testing.T, to net.Conn, bytes int) {
	t.Helper()
	hello := append([]byte{1, 0, 0xff, 0xf0}, make([]byte, bytes)...)
	for record := range slices.Chunk(hello, 16_000) {
		header := []byte{22, 3, 1, byte(len(record) >> 8), byte(len(record))}
		if _, err := to.Write(append(header, record...)); err != nil {
			t.Fatal(err)
		}
	}
}

// Before the first request and after it, bytes that are not of a request are limited. Those of requests are not.
func TestBytesOfNoRequestAreLimited(t *testing.T) {
	e := startEdge(t, 100)
	begun := time.Now()
	sendHello(t, e.dial(t, "127.0.0.1"), maxUnconsumedBytes+1000)
	for _, c := range []struct {
		protocol string
		sent     []string
	}{
		{"http/1.1", []string{"GET / HTTP/1.1\r\nHost: eventd\r\n\r\n"}},
		{"http/1.1", []string{"POST / HTTP/1.1\r\nHost: eventd\r\nContent-Length: 1000000\r\n\r\n", "["}},
		{"h2", []string{xhttp2.ClientPreface, "\x00\x00\x00\x04\x00\x00\x00\x00\x00"}}, // and settings
	} {
		e.sendUnfinishedMessage(t, c.protocol, c.sent...)
	}
	await.Until(t, "all are closed", func() bool { return e.listener.shares.InUse() == 0 })
	if took := time.Since(begun); took > handshakeTimeout/2 {
		t.Errorf("they are closed after %s", took)
	}
	for _, protocol := range []string{"h2", "http/1.1"} {
		dials := 0
		transport := &http.Transport{
			DialTLSContext: func(context.Context, string, string) (net.Conn, error) {
				dials++
				return e.dialTLS(t, "127.0.0.1", protocol)
			},
			Protocols: new(http.Protocols),
		}
		transport.Protocols.SetHTTP1(protocol != "h2")
		transport.Protocols.SetHTTP2(protocol == "h2")
		for _, body := range []int{0, 0, 0, 0, 0, 0, 3 * maxUnconsumedBytes, 3 * maxUnconsumedBytes, 0} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+e.address, strings.NewReader(strings.Repeat("a", body)))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Padding", strings.Repeat("\xff", 8<<10)) // HPACK makes it no shorter
			resp, err := transport.RoundTrip(req)
			if err != nil {
				t.Fatalf("%s: %v", protocol, err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
		if dials != 1 {
			t.Errorf("%s: %d connections, want 1", protocol, dials)
		}
		transport.CloseIdleConnections()
	}
}

// sendUnfinishedMessage connects, sends texts in a record each, and then, as no client of crypto/tls can, the beginning
// of a handshake message of 256 KiB (RFC 8446, 5.2 and 7.3).
func (e *edge) sendUnfinishedMessage(t *testing.T, protocol string, texts ...string) {
	t.Helper()
	raw, secrets := e.dial(t, "127.0.0.1"), &bytes.Buffer{}
	conn := tls.Client(raw, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{protocol}, KeyLogWriter: secrets, MinVersion: tls.VersionTLS13})
	for _, text := range texts {
		if _, err := io.WriteString(conn, text); err != nil {
			t.Fatal(err)
		}
	}
	_, found, _ := strings.Cut(secrets.String(), "CLIENT_TRAFFIC_SECRET_0 ")
	var random, secret []byte
	if _, err := fmt.Sscanf(found, "%x %x", &random, &secret); err != nil {
		t.Fatal(err)
	}
	if conn.ConnectionState().CipherSuite != tls.TLS_AES_128_GCM_SHA256 {
		t.Fatalf("another cipher than expected: %s", tls.CipherSuiteName(conn.ConnectionState().CipherSuite))
	}
	expand := func(label string, size int) []byte {
		label = "tls13 " + label
		out, err := hkdf.Expand(sha256.New, secret, string([]byte{0, byte(size), byte(len(label))})+label+"\x00", size)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	block, err := aes.NewCipher(expand("key", 16))
	if err != nil {
		t.Fatal(err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	const certificate, handshake, applicationData = 11, 22, 23
	message := append([]byte{certificate, 3, 0xff, 0xff}, make([]byte, 200<<10)...)
	sequence := uint64(len(texts))
	for part := range slices.Chunk(message, 16_000) {
		nonce := expand("iv", 12)
		binary.BigEndian.PutUint64(nonce[4:], binary.BigEndian.Uint64(nonce[4:])^sequence)
		size := len(part) + 1 + aead.Overhead()
		header := []byte{applicationData, 3, 3, byte(size >> 8), byte(size)}
		if _, err := raw.Write(aead.Seal(header, nonce, append(part[:len(part):len(part)], handshake), header)); err != nil {
			return // it is closed
		}
		sequence++
	}
}

// inUse is the memory in use. What is allocated while garbage is collected counts until the next collection, so it is the
// least of a few measurements; what is allocated after that counts never.
func inUse() int64 {
	least := int64(math.MaxInt64)
	for range 3 {
		runtime.GC()
		runtime.GC() // the first leaves objects with finalizers to the second
		live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
		metrics.Read(live)
		least = min(least, int64(live[0].Value.Uint64()+live[1].Value.Uint64()))
	}
	return least
}

// The memory of a connection that is idle or sends an incomplete request. It includes
// the client, which is in this process too.
func TestConnectionsTakeNoMoreThanIsSaid(t *testing.T) {
	const each = 25
	// waits is more than a client takes that waits to send. Without a limit, each took 3 MiB.
	const waits = 128 << 10
	// unfinished sends the headers of a request that do not end.
	unfinished := func(t *testing.T, e *edge, block []byte) {
		frames := slices.Collect(slices.Chunk(block, 16_000))
		framer := e.openHTTP2(t)
		err := framer.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: 1, BlockFragment: frames[0]})
		for _, frame := range frames[1:] {
			err = errors.Join(err, framer.WriteContinuation(1, false, frame))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	// Each is answered: with pings alone, more than what fits into a socket.
	pings := bytes.Repeat([]byte("\x00\x00\x08\x06\x00\x00\x00\x00\x0012345678"), 18_000)
	wrong := append(slices.Clone(pings), wrongHeaders(t, 200)...)
	for name, c := range map[string]struct {
		open func(t *testing.T, e *edge)
		most int64
	}{
		"idle": {func(t *testing.T, e *edge) { e.openHTTP2(t) }, ConnectionBytes},
		"half of a handshake": {func(t *testing.T, e *edge) {
			conn := e.dial(t, "127.0.0.1")
			sendHello(t, conn, maxUnconsumedBytes-100)
		}, MaxConnectionBytes},
		"HTTP/1.1, many headers": {func(t *testing.T, e *edge) {
			e.open(t, "http/1.1", "GET / HTTP/1.1\r\n"+strings.Repeat("a: b\r\n", intake.MaxHeaderBytes/6))
		}, MaxConnectionBytes},
		"HTTP/1.1, a long one": {func(t *testing.T, e *edge) {
			e.open(t, "http/1.1", "GET / HTTP/1.1\r\na: "+strings.Repeat("b", intake.MaxHeaderBytes))
		}, MaxConnectionBytes},
		"HTTP/2, many headers": {func(t *testing.T, e *edge) {
			unfinished(t, e, bytes.Repeat([]byte{0x80 | 16}, intake.MaxHeaderBytesHTTP2/60)) // each is accept-encoding
		}, MaxConnectionBytes},
		"HTTP/2, a long one": {func(t *testing.T, e *edge) {
			var block bytes.Buffer
			long := strings.Repeat("\x01", intake.MaxHeaderBytesHTTP2)
			_ = hpack.NewEncoder(&block).WriteField(hpack.HeaderField{Name: "x", Value: long, Sensitive: true})
			unfinished(t, e, block.Bytes()[:block.Len()-10])
		}, MaxConnectionBytes},
		"HTTP/2, half of a frame": {func(t *testing.T, e *edge) {
			if err := e.openHTTP2(t).WriteRawFrame(0xfe, 0, 0, make([]byte, frameBytes)); err != nil {
				t.Fatal(err)
			}
		}, MaxConnectionBytes},
		"HTTP/2, pings without an end":         {func(t *testing.T, e *edge) { e.readNothing(t, pings) }, MaxConnectionBytes + waits},
		"HTTP/2, wrong headers without an end": {func(t *testing.T, e *edge) { e.readNothing(t, wrong) }, MaxConnectionBytes + waits},
	} {
		t.Run(name, func(t *testing.T) {
			await.Until(t, "no connection of another test is served", func() bool {
				stacks := make([]byte, 1<<20)
				return !bytes.Contains(stacks[:runtime.Stack(stacks, true)], []byte("net/http.(*conn).serve"))
			})
			e := startEdge(t, 3*each)
			before := inUse()
			for range each {
				c.open(t, e)
			}
			var took int64
			quiet := 0
			await.Until(t, "no more is taken", func() bool { // the server reads in several steps
				takes := (inUse() - before) / each
				// On a busy machine, some on which nothing can be written are closed (connWriteTimeout).
				if e.listener.shares.InUse() < each/2 {
					return took >= c.most/10
				}
				if takes > took+took/50 {
					took, quiet = takes, 0
				}
				quiet++
				return quiet > 5 && took >= c.most/10
			})
			t.Logf("%d KiB each", took>>10)
			if took > c.most {
				t.Errorf("each takes %d KiB, up to %d are said", took>>10, c.most>>10)
			}
		})
	}
}

// wrongHeaders are requests over HTTP/2 with a name that is no name.
func wrongHeaders(t *testing.T, n int) []byte {
	var block, frames bytes.Buffer
	name := strings.Repeat("\x01", 15_900)
	_ = hpack.NewEncoder(&block).WriteField(hpack.HeaderField{Name: name, Value: "a", Sensitive: true})
	framer := xhttp2.NewFramer(&frames, nil)
	for i := range n {
		headers := xhttp2.HeadersFrameParam{StreamID: uint32(2*i + 1), BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true}
		if err := framer.WriteHeaders(headers); err != nil {
			t.Fatal(err)
		}
	}
	return frames.Bytes()
}

// readNothing sends frames over HTTP/2, reads nothing that comes, and has little room for it.
func (e *edge) readNothing(t *testing.T, frames []byte) {
	t.Helper()
	dialer := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		return errors.Join(c.Control(func(fd uintptr) {
			err = errors.Join(syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096),
				syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_MAXSEG, 536))
		}), err)
	}}
	raw, err := dialer.Dial("tcp", e.address)
	if err != nil {
		t.Fatal(err)
	}
	conn := tls.Client(raw, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if _, err := io.WriteString(conn, xhttp2.ClientPreface+"\x00\x00\x00\x04\x00\x00\x00\x00\x00"); err != nil {
		t.Fatal(err)
	}
	var sending sync.WaitGroup
	sending.Go(func() { _, _ = conn.Write(frames) })
	t.Cleanup(func() {
		_ = raw.Close()
		sending.Wait()
	})
}

// requestWithoutRoom sends requests with an HTTP/2 window of 0, and returns when the header
// of an answer has arrived. The body of none can be sent.
func requestWithoutRoom(t *testing.T, e *edge) {
	framer := e.openHTTP2(t, xhttp2.Setting{ID: xhttp2.SettingInitialWindowSize, Val: 0})
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for id := uint32(1); id < 40; id += 2 {
		block.Reset()
		for _, field := range [][2]string{
			{":method", "GET"}, {":scheme", "https"}, {":authority", "eventd"}, {":path", "/version"},
			{"authorization", "Bearer " + goodToken},
		} {
			_ = encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]})
		}
		headers := xhttp2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true}
		if err := framer.WriteHeaders(headers); err != nil {
			t.Fatal(err)
		}
	}
	for answered := false; !answered; {
		frame, err := framer.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		_, answered = frame.(*xhttp2.HeadersFrame)
	}
}

// Clients that do not read answers, or do not send the rest of a request, or send
// nothing, do not delay a stop.
func TestStopDoesNotWaitForClientsThatStall(t *testing.T) {
	for name, stall := range map[string]func(t *testing.T, e *edge){
		"HTTP/2 with a window of 0": requestWithoutRoom,
		"HTTP/1.1, half of a body": func(t *testing.T, e *edge) {
			e.open(t, "http/1.1", "POST /api/v1/namespaces/shop/events HTTP/1.1\r\nHost: eventd\r\n"+
				"Content-Type: application/json\r\nAuthorization: Bearer "+goodToken+"\r\nContent-Length: 1000\r\n\r\n{")
		},
		"HTTP/1.1, nothing": func(t *testing.T, e *edge) { e.open(t, "http/1.1", "") },
	} {
		t.Run(name, func(t *testing.T) {
			r := startRunning(t, startAPIServer(t))
			stall(t, &edge{address: strings.TrimPrefix(r.config.Host, "https://")})
			begun := time.Now()
			r.terminate(t)
			if took := time.Since(begun); took > 4*time.Second {
				t.Errorf("the stop took %s", took)
			}
		})
	}
}

// logged returns what a function logs at verbosity 0. The log of the process belongs to all goroutines.
func logged(by func(logr.Logger)) string {
	var written strings.Builder
	by(funcr.New(func(_, args string) { written.WriteString(args + "\n") }, funcr.Options{}))
	return written.String()
}

// A client can cause a message with each frame that it sends.
func TestServerLimitsItsErrorLog(t *testing.T) {
	written := logged(func(logger logr.Logger) {
		server := newLibraryLog(logger, "HTTP server error")
		for range 1000 {
			server.Print("http2: received GOAWAY")
			server.Print("http: TLS handshake error from 10.0.0.1:1: EOF")
		}
	})
	if lines := strings.Count(written, "HTTP server error"); lines != 1 || !strings.Contains(written, "GOAWAY") {
		t.Errorf("%d lines: %.300s", lines, written)
	}
}

// The key of a strategic patch, of 100 KB, was logged twice.
func TestErrorsOfLibrariesAreLoggedInPart(t *testing.T) {
	limitLibraryErrors()
	var written strings.Builder
	ctx := klog.NewContext(t.Context(), funcr.New(func(_, args string) { written.WriteString(args) }, funcr.Options{Verbosity: 4})) // of others, too many may have come
	utilruntime.HandleErrorWithContext(ctx, errors.New(strings.Repeat("x", 200_000)), "Unhandled Error")
	utilruntime.HandleErrorWithContext(ctx, nil, "Unhandled Error")
	if strings.Count(written.String(), "Unhandled Error") != 2 || written.Len() > 2000 {
		t.Errorf("%d bytes: %.300s", written.Len(), written.String())
	}
}

// A destination can cause a message of 16 KiB with each answer.
func TestLogOfTheStandardLibraryIsLimited(t *testing.T) {
	limitLibraryErrors()
	if _, ok := log.Writer().(libraryLog); !ok || log.Flags() != 0 {
		t.Errorf("the output of the standard library's log is %T", log.Writer())
	}
	written := logged(func(logger logr.Logger) {
		library := newLibraryLog(logger, "A library has logged")
		for range 1000 {
			library.Printf("Unsolicited response received on idle HTTP channel starting with %q", strings.Repeat("\x00", 4096))
		}
	})
	if lines := strings.Count(written, "A library has logged"); lines > 1 || len(written) > 10_000 {
		t.Errorf("%d lines, %d bytes: %.300s", lines, len(written), written)
	}
}
