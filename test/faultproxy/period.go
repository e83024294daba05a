package faultproxy

import (
	"context"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
)

// streamsPerConnection is what a kube-apiserver allows too.
const streamsPerConnection = 100

// period is the time from New or Resume to Pause or Close. It owns the listener, the
// connections, the requests and the late writes of that time.
type period struct {
	ctx     context.Context // ends with the period
	cancel  context.CancelFunc
	proxy   *Proxy
	server  *http.Server
	serving sync.WaitGroup

	mu   sync.Mutex
	over bool
	work sync.WaitGroup // requests and late writes
}

func newPeriod(p *Proxy, l net.Listener) *period {
	n := &period{proxy: p}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	n.server = &http.Server{
		Handler:     n,
		TLSConfig:   &tls.Config{Certificates: []tls.Certificate{p.certificate}, MinVersion: tls.VersionTLS12},
		HTTP2:       &http.HTTP2Config{MaxConcurrentStreams: streamsPerConnection},
		BaseContext: func(net.Listener) context.Context { return n.ctx },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, c.(*tls.Conn).NetConn())
		},
		ErrorLog: log.New(io.Discard, "", 0), // the faults cause errors of connections
	}
	// It returns an error when the listener is closed.
	n.serving.Go(func() { _ = n.server.ServeTLS(acceptor{l, n}, "", "") })
	return n
}

// ServeHTTP handles a request, unless the period is over.
func (n *period) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n.mu.Lock()
	over := n.over
	if !over {
		n.work.Add(1)
	}
	n.mu.Unlock()
	if over {
		panic(http.ErrAbortHandler)
	}
	defer n.work.Done()
	n.proxy.serve(n, w, r)
}

// end resets all connections, ends all requests, cancels late writes that still wait,
// and waits for the backend.
func (n *period) end() {
	n.mu.Lock()
	n.over = true
	n.mu.Unlock()
	n.cancel()
	n.server.Close()
	n.serving.Wait()
	n.work.Wait()
}

// acceptor accepts connections of a period.
type acceptor struct {
	net.Listener
	period *period
}

func (a acceptor) Accept() (net.Conn, error) {
	c, err := a.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &conn{c, a.period}, nil
}

// conn is a client's connection. It closes with a TCP RST.
type conn struct {
	net.Conn
	period *period
}

type connKey struct{}

// connOf returns the connection that a request came on.
func connOf(r *http.Request) *conn { return r.Context().Value(connKey{}).(*conn) }

// Write sends nothing after the end of the period, not even that TLS ends.
func (c *conn) Write(b []byte) (int, error) {
	if c.period.ctx.Err() != nil {
		return 0, net.ErrClosed
	}
	return c.Conn.Write(b)
}

func (c *conn) Close() error {
	c.Conn.(*net.TCPConn).SetLinger(0)
	return c.Conn.Close()
}
