package jetstream

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"

	"github.com/eventd/eventd/pkg/config/v1alpha1"
	"github.com/eventd/eventd/test/await"
)

const info = `INFO {"server_id":"A","version":"2.10.0","headers":true,"max_payload":1048576}` + "\r\n"

// hostileServer accepts connections, and leaves each to serve.
func hostileServer(t *testing.T, serve func(net.Conn)) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	var wg sync.WaitGroup
	t.Cleanup(wg.Wait)
	t.Cleanup(func() { _ = l.Close() })
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer conn.Close()
				serve(conn)
			})
		}
	})
	return "nats://" + l.Addr().String()
}

// accepted is what a server answers to the client's first lines.
func accepted(conn net.Conn) error {
	if _, err := io.WriteString(conn, info); err != nil {
		return err
	}
	for r := bufio.NewReader(conn); ; {
		line, err := r.ReadString('\n')
		if err != nil {
			return err
		}
		if strings.HasPrefix(line, "PING") {
			_, err = io.WriteString(conn, "PONG\r\n")
			return err
		}
	}
}

// The client would panic in a goroutine of its own, or allocate what the server says.
func TestServerCannotMakeTheClientAllocate(t *testing.T) {
	for name, head := range map[string]string{
		"more than a slice can have": "MSG a 1 9223372036854775807\r\n",
		"more than a number can be":  "MSG a 1 99999999999999999999999999\r\n",
		"two gigabytes":              "MSG a 1 2000000000\r\n",
		"with headers":               "HMSG a 1 12 9223372036854775807\r\n",
		"in lower case":              "msg a 1 9223372036854775807\r\n",
		"behind another message":     "MSG a 1 5\r\n12345\r\nMSG a 1 9223372036854775807\r\n",
		"behind an empty message":    "MSG a 1 0\r\n\nMSG a 1 99\r\nMSG a 1 9223372036854775807\r\n",
		"behind two returns":         "MSG a 1 5\r9\n",
	} {
		t.Run(name, func(t *testing.T) {
			r := newReceiver(t, v1alpha1.JetStream{URL: hostileServer(t, func(conn net.Conn) {
				if accepted(conn) != nil {
					return
				}
				_, _ = io.WriteString(conn, head+"x")
				_, _ = io.Copy(io.Discard, conn)
			})})
			sendError(t, r, records(1, 1, "a"), await.Timeout, "the server has sent")
		})
	}
}

func TestLineWithoutAnEndIsNotRead(t *testing.T) {
	endless := strings.Repeat("A", 1<<20)
	for name, begin := range map[string]func(net.Conn) error{
		"at the beginning": func(net.Conn) error { return nil },
		"later":            accepted,
	} {
		t.Run(name, func(t *testing.T) {
			written := make(chan int, 1)
			r := newReceiver(t, v1alpha1.JetStream{URL: hostileServer(t, func(conn net.Conn) {
				n, err := 0, begin(conn)
				for op := "INFO "; err == nil; op = "" {
					var more int
					more, err = io.WriteString(conn, op+endless)
					n += more
				}
				written <- n
			})})
			ctx, cancel := context.WithTimeout(t.Context(), await.Timeout)
			defer cancel()
			// The connection may end while the client prepares to publish.
			_, err := r.Send(ctx, records(1, 1, "a"))
			if err == nil || !strings.Contains(err.Error(), "too large") && !strings.Contains(err.Error(), "connection closed") {
				t.Fatalf("Send returned %v", err)
			}
			must(t, r.Close())
			if n := <-written; n > 64<<20 { // the buffers of two sockets
				t.Errorf("the server could send %d bytes", n)
			}
		})
	}
}

// Whatever the reads, the frames are those that the parser of the client sees.
func TestFramesDoNotDependOnReads(t *testing.T) {
	const refused = "MSG a 1 65537\r\n"
	payload := strings.Repeat(refused, 3)
	stream := info + fmt.Sprintf("PING\r\nMSG a 1 %d\r\n%s\r%s\nHMSG a 1 2\r\n\r\n\r\nMSG\ta\t1\tb\t0\r\n\r\n+OK\r\n-ERR 'a'\r\n", len(payload), payload, "ignored MSG a 1 9")
	for name, reader := range map[string]func(io.Reader) io.Reader{
		"whole": func(r io.Reader) io.Reader { return r }, "bytes": iotest.OneByteReader, "halves": iotest.HalfReader, "with the error": iotest.DataErrReader,
	} {
		got, err := io.ReadAll(&framed{from: reader(strings.NewReader(stream))})
		if err != nil || string(got) != stream {
			t.Errorf("%s: read %d of %d bytes, %v", name, len(got), len(stream), err)
		}
		if _, err := io.ReadAll(&framed{from: reader(strings.NewReader(stream + refused))}); err != errOversized {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := io.ReadAll(&framed{from: bytes.NewReader(make([]byte, maxLine+1))}); err != errOversized {
		t.Errorf("a line of %d bytes: %v", maxLine+1, err)
	}
}

// The credentials are for the servers of the configuration, and not for those that one of them names.
func TestServersThatAServerNamesGetNoConnection(t *testing.T) {
	var connections atomic.Int32
	other := hostileServer(t, func(net.Conn) { connections.Add(1) })
	named := strings.TrimPrefix(other, "nats://")
	r := newReceiver(t, v1alpha1.JetStream{URL: hostileServer(t, func(conn net.Conn) {
		_, _ = fmt.Fprintf(conn, `INFO {"server_id":"A","headers":true,"max_payload":1048576,"connect_urls":[%q]}`+"\r\n", named)
		_, _ = bufio.NewReader(conn).ReadString('\n')
		_, _ = io.WriteString(conn, "-ERR 'Authorization Violation'\r\n")
	})})
	sendError(t, r, records(1, 1, "a"), await.Timeout, "connect")
	if n := connections.Load(); n != 0 {
		t.Errorf("%d connections to a server that is not configured", n)
	}
}

// Whoever is between the client and the server can change what comes before the handshake.
func TestNothingIsSentWithoutTheTLSThatIsConfigured(t *testing.T) {
	for name, of := range map[string]struct{ info, want string }{
		"the server has no TLS":          {info, "secure connection not available"},
		"something before the handshake": {strings.Replace(info, "{", `{"tls_required":true,`, 1) + "PING\r\n", "before the handshake"},
	} {
		t.Run(name, func(t *testing.T) {
			got := make(chan []byte, 1)
			url := hostileServer(t, func(conn net.Conn) {
				_, _ = io.WriteString(conn, of.info)
				data, _ := io.ReadAll(conn)
				got <- data
			})
			r := newReceiver(t, v1alpha1.JetStream{URL: strings.Replace(url, "nats:", "tls:", 1)})
			sendError(t, r, records(1, 1, "a"), await.Timeout, of.want)
			if data := <-got; len(data) > 0 {
				t.Errorf("the client has sent %q", data)
			}
		})
	}
}

// chunks reads as many bytes at a time as its sizes say.
type chunks struct {
	data, sizes []byte
}

func (c *chunks) Read(p []byte) (int, error) {
	if len(c.data) == 0 {
		return 0, io.EOF
	}
	n := len(c.data)
	if len(c.sizes) > 0 {
		n = min(n, 1+int(c.sizes[0]))
		c.sizes = c.sizes[1:]
	}
	n = copy(p, c.data[:min(n, len(p))])
	c.data = c.data[n:]
	return n, nil
}

// Whatever a server sends, and in whichever parts: all of it reaches the client, or it is refused
// before, and what is kept of it is bounded.
func FuzzFrames(f *testing.F) {
	f.Add([]byte(info+"PING\r\nMSG a 1 5\r\n12345\r\nMSG a 1 9223372036854775807\r\n"), []byte{3, 0, 7})
	f.Add([]byte("HMSG a 1 2\r\n\r\n\r\nmsg a 1 0\r\n\nMSG a 1 5\r9\n"), []byte{1})
	f.Add([]byte("-ERR 'a'\r\nMSG a 65537\r\n"), []byte{})
	f.Add([]byte("M\r\nMSG\t\r\n"), []byte{})
	f.Fuzz(func(t *testing.T, stream, sizes []byte) {
		whole, wantErr := io.ReadAll(&framed{from: bytes.NewReader(stream)})
		if wantErr == nil && !bytes.Equal(whole, stream) {
			t.Errorf("%d of %d bytes are read", len(whole), len(stream))
		}
		parts := &framed{from: &chunks{stream, sizes}}
		got, err := io.ReadAll(parts)
		if err != wantErr || !bytes.HasPrefix(stream, got) || err == nil && len(got) != len(stream) {
			t.Errorf("%d bytes and %v in parts, %d and %v at once", len(got), err, len(whole), wantErr)
		}
		if len(parts.line) > maxLine || parts.payload > maxPayload+1 {
			t.Errorf("%d bytes of a line, and a payload of %d, are kept", len(parts.line), parts.payload)
		}
	})
}
