package hostile

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/eventd/eventd/test/await"
)

// connect keeps idle connections from an address open until ctx ends, and reopens
// those that the server closes.
func connect(ctx context.Context, t *testing.T, a *account, from string, most int) {
	dialer := &tls.Dialer{NetDialer: &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}, Config: a.tlsConfig(t, "h2")}
	var open stalledConns
	defer open.close()
	crowd(ctx, 16, 100, func() {
		open.mu.Lock()
		enough := len(open.conns) >= most
		open.mu.Unlock()
		if enough {
			return
		}
		ctx, cancel := context.WithTimeout(ctx, requestPatience)
		defer cancel()
		conn, err := dialer.DialContext(ctx, "tcp", a.hostPort())
		if err != nil {
			return // refused
		}
		open.mu.Lock()
		defer open.mu.Unlock()
		open.conns = append(open.conns, conn)
	})
}

func TestIdleConnectionsOfAnAddressKeepNobodyOut(t *testing.T) {
	const most = 600
	g := eventdTarget(t, "--max-connections=600")
	attacker := g.account(t, "attacker")
	siege{
		allowed: usual, lasts: 6 * time.Second,
		attack: func(ctx context.Context) { connect(ctx, t, attacker, "127.0.0.66", 2*most) },
		ready: func() {
			await.Until(t, "a connection of the address to be refused", func() bool { return g.metrics(t).Sum("eventd_connections_refused_total") > 0 })
			if open := g.metrics(t).Sum("eventd_connections"); open < most/4 || open > most/2 {
				t.Errorf("%v connections are open, want about a third of %d", open, most)
			}
			// Another address still gets one.
			other := attacker.anonymous(t, "127.0.0.67")
			if a := other.do(t.Context(), "GET", other.config.Host+"/readyz", ""); a.Code != 200 {
				t.Errorf("a new client on another address is answered %v", a)
			}
		},
	}.run(t, g)
}

// answers has the server answer frames of which it serves none, and reads nothing of that, until ctx ends or the server
// closes the connection: pings, until the sockets are full, and then headers with a long name that is none.
func answers(ctx context.Context, t *testing.T, a *account, from string) {
	dialer := &tls.Dialer{Config: a.tlsConfig(t, "h2"), NetDialer: &net.Dialer{
		LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)},
		Control: func(_, _ string, c syscall.RawConn) error {
			return c.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096) })
		},
	}}
	conn, err := dialer.DialContext(ctx, "tcp", a.hostPort())
	if err != nil {
		return // refused
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	pings := bytes.Repeat([]byte("\x00\x00\x08\x06\x00\x00\x00\x00\x0012345678"), 1000)
	var block bytes.Buffer
	_ = hpack.NewEncoder(&block).WriteField(hpack.HeaderField{Name: strings.Repeat("\x01", 15_900), Value: "a", Sensitive: true})
	_, err = io.WriteString(conn, http2.ClientPreface+"\x00\x00\x00\x04\x00\x00\x00\x00\x00")
	for i := 0; i < 20 && err == nil; i++ {
		_, err = conn.Write(pings)
	}
	framer := http2.NewFramer(conn, nil)
	for id := uint32(1); err == nil; id += 2 {
		err = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true})
	}
}

// Without credentials, a client can have the server answer what is no request.
func TestAnswersToNoRequestTakeNoMemory(t *testing.T) {
	g := eventdTarget(t)
	attacker := g.account(t, "attacker")
	siege{allowed: limits{peak: 256, p99: usual.p99}, lasts: 6 * time.Second, attack: func(ctx context.Context) {
		var n atomic.Int64
		crowd(ctx, 60, 30, func() { answers(ctx, t, attacker, fmt.Sprint("127.0.0.", 66+n.Add(1)%3)) })
	}}.run(t, g)
}

// stalledConns are HTTP/2 connections whose client reads no answer: its flow-control
// window stays 0.
type stalledConns struct {
	mu    sync.Mutex
	conns []net.Conn
}

const streamsOfAConn = 100

// stalledRequest is a request whose answer is not read.
type stalledRequest struct{ method, path, body string }

// echoed is a request without effect whose answer is larger than the 4 KB that a Go
// server buffers before it waits for the window.
func (a *account) echoed() stalledRequest {
	event := strings.Replace(a.event("echoed", "echoed", "Normal", 1), `"metadata":{`, `"metadata":{"annotations":{"a":"`+strings.Repeat("x", 6000)+`"},`, 1)
	return stalledRequest{"POST", "/api/v1/namespaces/" + a.namespace + "/events?dryRun=All", event}
}

// open opens a connection and makes a request on as many streams as a server allows by
// default.
func (s *stalledConns) open(ctx context.Context, t *testing.T, a *account, r stalledRequest) error {
	return s.openStreams(ctx, t, a, r, streamsOfAConn)
}

func (s *stalledConns) openStreams(ctx context.Context, t *testing.T, a *account, r stalledRequest, streams int) error {
	conn, err := (&tls.Dialer{Config: a.tlsConfig(t, "h2")}).DialContext(ctx, "tcp", a.hostPort())
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.conns = append(s.conns, conn)
	s.mu.Unlock()
	if err := conn.SetWriteDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		return err
	}
	framer := http2.NewFramer(conn, conn)
	if err := framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}); err != nil {
		return err
	}
	go acknowledge(http2.NewFramer(conn, conn)) // a framer is for one goroutine
	host, err := url.Parse(a.config.Host)
	if err != nil {
		return err
	}
	for i := range streams {
		var block bytes.Buffer
		encoder := hpack.NewEncoder(&block)
		for _, field := range [][2]string{
			{":method", r.method}, {":scheme", "https"}, {":authority", host.Host}, {":path", r.path},
			{"authorization", "Bearer " + a.config.BearerToken}, {"content-type", "application/json"},
		} {
			if err := encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]}); err != nil {
				return err
			}
		}
		if err := framer.WriteHeaders(http2.HeadersFrameParam{
			StreamID: uint32(2*i + 1), BlockFragment: block.Bytes(), EndHeaders: true,
		}); err != nil {
			return err
		}
		if err := framer.WriteData(uint32(2*i+1), true, []byte(r.body)); err != nil {
			return err
		}
	}
	return nil
}

// acknowledge reads frames until the connection ends, so that only the window blocks
// the answers.
func acknowledge(framer *http2.Framer) {
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			return
		}
		if settings, ok := frame.(*http2.SettingsFrame); ok && !settings.IsAck() {
			if framer.WriteSettingsAck() != nil {
				return
			}
		}
	}
}

func (s *stalledConns) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, conn := range s.conns {
		_ = conn.Close()
	}
	s.conns = nil
}

// stall keeps connections open until ctx ends, and reopens those that the server
// closes.
func stall(ctx context.Context, t *testing.T, a *account, r stalledRequest) {
	var s stalledConns
	defer s.close()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for ctx.Err() == nil {
		for range 11 {
			_ = s.open(ctx, t, a, r) // the server may close it
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

func TestClientThatReadsNoAnswersStopsNobody(t *testing.T) {
	both(t, func(t *testing.T, g *target) {
		attacker := g.account(t, "attacker", "create")
		siege{allowed: limits{peak: 256, p99: usual.p99}, attack: func(ctx context.Context) {
			stall(ctx, t, attacker, attacker.echoed())
		}}.run(t, g)
	})
}

// All ServiceAccounts of a namespace are one tenant. One that reads no answers uses up its own share of it, and those
// without rights a share that they have together.
func TestAccountThatReadsNoAnswersStopsNoOtherOfItsNamespace(t *testing.T) {
	g := eventdTarget(t)
	for name, of := range map[string]struct {
		accounts int
		verbs    []string
	}{
		"an account without rights": {1, nil},
		"three without rights":      {3, nil},
		"one with rights":           {1, []string{"create"}},
	} {
		t.Run(name, func(t *testing.T) {
			namespace := g.cluster.Namespace(t)
			var attackers []*account
			for i := range of.accounts {
				attackers = append(attackers, g.accountIn(t, namespace, fmt.Sprint("attacker-", i), of.verbs...))
			}
			siege{allowed: limits{peak: 256, p99: usual.p99}, namespace: namespace, attack: func(ctx context.Context) {
				var all sync.WaitGroup
				for _, a := range attackers {
					all.Go(func() { stall(ctx, t, a, a.echoed()) })
				}
				all.Wait()
			}}.run(t, g)
		})
	}
}

func TestClientThatReadsNoAnswersDoesNotDelayTheShutdown(t *testing.T) {
	g := eventdTarget(t)
	attacker := g.account(t, "attacker", "create")
	for _, r := range []stalledRequest{attacker.echoed(), {"GET", "/apis", ""}, {"GET", "/readyz?verbose", ""}, {"GET", "/" + strings.Repeat("x", 6000), ""}} {
		var s stalledConns
		defer s.close()
		if err := s.open(t.Context(), t, attacker, r); err != nil {
			t.Fatal(err)
		}
	}
	// Another client is answered after the server has accepted those. While too many of its address are unknown, it
	// comes again.
	other := g.account(t, "other", "create")
	await.Until(t, "an Event of another client is taken", func() bool {
		return other.postEvent(t.Context(), other.event("after", "after", "Normal", 1)).Code == 201
	})
	begun := time.Now()
	g.eventd.Terminate(t)
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("eventd took %s to end", took)
	}
}
