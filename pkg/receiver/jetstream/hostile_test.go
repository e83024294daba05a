package jetstream

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/eventd/eventd/pkg/config/v1alpha1"
	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/receivertest"
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
	got := make(chan []byte, 1)
	url := hostileServer(t, func(conn net.Conn) {
		_, _ = io.WriteString(conn, info)
		data, _ := io.ReadAll(conn)
		got <- data
	})
	r := newReceiver(t, v1alpha1.JetStream{URL: strings.Replace(url, "nats:", "tls:", 1)})
	sendError(t, r, records(1, 1, "a"), await.Timeout, "secure connection not available")
	if data := <-got; len(data) > 0 {
		t.Errorf("the client has sent %q", data)
	}
}

func TestTimeoutNamesItsStep(t *testing.T) {
	receivertest.HangLookups(t)
	silent, unanswered := receivertest.Silent(t), receivertest.Unanswered(t)
	for url, want := range map[string]string{
		"nats://nats.example:4222": "lookup nats.example",
		"nats://" + unanswered:     "dial tcp " + unanswered,
		"nats://" + silent:         "read tcp",
		"tls://" + silent:          "read tcp", // the server begins, before a handshake
	} {
		t.Run(url, func(t *testing.T) {
			r := newReceiver(t, v1alpha1.JetStream{URL: url})
			await.Until(t, want, func() bool { // a busy machine may time out before
				ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				defer cancel()
				_, err := r.Send(ctx, records(1, 1, "small"))
				return strings.Contains(fmt.Sprint(err), want)
			})
		})
	}
}
