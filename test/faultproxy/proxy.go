package faultproxy

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
)

// Proxy is a reverse proxy with faults. See the package's documentation.
type Proxy struct {
	ctx         context.Context // ends with Close
	cancel      context.CancelFunc
	config      *rest.Config // the backend's
	backend     *httputil.ReverseProxy
	certificate tls.Certificate
	address     *net.TCPAddr
	anchor      []net.Conn
	seed        uint64

	mu     sync.Mutex
	key    func(Request) string
	rules  []Rule
	writes map[string]uint64 // by key
	limit  int               // of concurrent writes; 0 is none
	used   int
	record []*Entry

	changing sync.Mutex // serializes Pause, Resume and Close
	current  *period    // nil while paused
}

// New starts a proxy in front of a backend, without any faults yet, and closes it
// when the test ends. A test that fails logs the seed.
func New(t testing.TB, backend *rest.Config, seed uint64) *Proxy {
	t.Helper()
	p, err := Start(backend, seed)
	if err != nil {
		t.Fatalf("faultproxy: %v", err)
	}
	t.Cleanup(func() {
		p.Close()
		if t.Failed() {
			t.Logf("faultproxy: seed %d", seed)
		}
	})
	return p
}

// Start is New for programs that are not tests. The caller closes the proxy.
func Start(backend *rest.Config, seed uint64) (*Proxy, error) {
	p := &Proxy{config: rest.CopyConfig(backend), seed: seed, key: verbAndName, writes: map[string]uint64{}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	// The certificate of package httptest is valid at the loopback address.
	server := httptest.NewTLSServer(nil)
	server.Close()
	p.certificate = server.TLS.Certificates[0]
	var err error
	if p.backend, err = newBackend(p.config); err != nil {
		return nil, err
	}
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, err
	}
	p.address = listener.Addr().(*net.TCPAddr)
	if err := p.dropAnchor(listener); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	p.current = newPeriod(p, listener)
	return p, nil
}

// dropAnchor reserves the port while the proxy does not listen: as long as there is a
// connection at it, no other process can get it, and the proxy may listen on it again.
func (p *Proxy) dropAnchor(l *net.TCPListener) error {
	near, err := net.DialTCP("tcp", nil, p.address)
	if err != nil {
		return err
	}
	far, err := l.Accept()
	p.anchor = []net.Conn{near, far}
	return err
}

// Config returns a copy of the backend's configuration for the address of the proxy. It
// has no client certificate, since the proxy uses that itself.
func (p *Proxy) Config() *rest.Config {
	c := rest.CopyConfig(p.config)
	c.Host = "https://" + p.address.String()
	c.TLSClientConfig = rest.TLSClientConfig{
		CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.certificate.Certificate[0]}),
	}
	c.Dial, c.Proxy = nil, nil
	return c
}

// Pause makes the proxy behave as a stopped apiserver: connections are reset, new ones
// are refused, and late writes that still wait are lost. When it returns, each request
// to the backend has been answered or, if no fault had struck, cancelled; a cancelled
// write may still take effect in the backend. A second Pause does nothing.
func (p *Proxy) Pause() {
	p.changing.Lock()
	defer p.changing.Unlock()
	if p.current != nil {
		p.current.end()
		p.current = nil
	}
}

// Resume ends Pause, under the same address. It fails only if the address cannot be
// listened on, or after Close.
func (p *Proxy) Resume() error {
	p.changing.Lock()
	defer p.changing.Unlock()
	if p.ctx.Err() != nil {
		return errors.New("faultproxy: closed")
	}
	if p.current != nil {
		return nil
	}
	listener, err := net.ListenTCP("tcp", p.address)
	if err == nil {
		p.current = newPeriod(p, listener)
	}
	return err
}

// Close resets all connections, cancels the requests to the backend and the late
// writes that still wait, and waits for all of that. It may be called again. The
// Record stays.
func (p *Proxy) Close() {
	p.cancel()
	p.Pause()
	for _, c := range p.anchor {
		c.Close()
	}
	closeIdle(p.backend)
}

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
