package faultproxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
)

// streamsPerConnection is what a kube-apiserver allows too.
const streamsPerConnection = 100

// period is the time from New or Resume to Pause or Close. It owns the listener, the
// connections, the requests and the late writes of that time.
type period struct {
	ctx      context.Context // ends with the period
	cancel   context.CancelFunc
	listener *net.TCPListener
	gate     *gate
	server   *http.Server
	serving  sync.WaitGroup
	work     sync.WaitGroup // requests and late writes

	mu    sync.Mutex
	over  bool
	conns map[*conn]struct{}
}

// newPeriod begins to serve. handle is given requests that the period waits for.
func newPeriod(l *net.TCPListener, certificate tls.Certificate, g *gate, handle func(*period, http.ResponseWriter, *http.Request)) *period {
	p := &period{listener: l, gate: g, conns: map[*conn]struct{}{}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.server = &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !p.begin() {
				panic(http.ErrAbortHandler)
			}
			defer p.work.Done()
			handle(p, w, r)
		}),
		TLSConfig:   &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
		HTTP2:       &http.HTTP2Config{MaxConcurrentStreams: streamsPerConnection},
		BaseContext: func(net.Listener) context.Context { return p.ctx },
		ConnContext: withConn,
		ErrorLog:    log.New(panicsOnly{os.Stderr}, "faultproxy: ", 0),
	}
	// It returns an error when the listener is closed.
	p.serving.Go(func() { _ = p.server.ServeTLS(acceptor{p}, "", "") })
	return p
}

// begin adds a request, unless the period is over.
func (p *period) begin() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return false
	}
	p.work.Add(1)
	return true
}

// end resets all connections, ends all requests, cancels late writes that still wait,
// and waits for the backend.
func (p *period) end() {
	p.listener.Close()
	p.mu.Lock()
	p.over = true
	conns := slices.Collect(maps.Keys(p.conns))
	p.mu.Unlock()
	for _, c := range conns {
		c.reset()
	}
	p.cancel()
	p.server.Close()
	p.serving.Wait()
	p.work.Wait()
}

// acceptor is a period's net.Listener. Its connections are the period's.
type acceptor struct{ *period }

func (a acceptor) Accept() (net.Conn, error) {
	tcp, err := a.listener.AcceptTCP()
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: tcp, gate: a.gate, gone: a.forget, closed: make(chan struct{})}
	a.mu.Lock()
	a.conns[c] = struct{}{}
	over := a.over
	a.mu.Unlock()
	if over {
		c.reset()
	}
	return c, nil
}

func (a acceptor) Close() error   { return a.listener.Close() }
func (a acceptor) Addr() net.Addr { return a.listener.Addr() }

func (p *period) forget(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

// panicsOnly passes what a server logs of panics, such as those of a key function, and
// drops the errors of connections, which the faults cause.
type panicsOnly struct{ w io.Writer }

func (p panicsOnly) Write(line []byte) (int, error) {
	if !bytes.Contains(line, []byte("panic serving")) {
		return len(line), nil
	}
	return p.w.Write(line)
}
