package app

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/eventd/eventd/internal/instrument"
	"github.com/eventd/eventd/internal/shares"
	"github.com/eventd/eventd/pkg/intake"
)

// connWriteTimeout limits one write to a connection, of at most 16 KiB. An HTTP/2
// stream has its own deadline (pkg/intake), which has no effect while a write to its
// connection blocks.
const connWriteTimeout = 10 * time.Second

const (
	// ConnectionBytes is the memory of an idle connection. MaxConnectionBytes is the
	// maximum before a request is served: during the handshake or the headers.
	// TestConnectionsTakeNoMoreThanIsSaid measures both.
	ConnectionBytes    = 44 << 10
	MaxConnectionBytes = 96 << 10
	// maxUnconsumedBytes limits what a client sends while the server reads nothing of it: a hello, which has about
	// 2 KiB, its certificates, and headers of HTTP/1.1, with some of a body. crypto/tls buffers up to 256 KiB of a
	// message that does not end, before the first request or after it.
	maxUnconsumedBytes = 4<<10 + maxClientCertBytes + intake.MaxHeaderBytes + 8<<10
)

// boundedListener limits the number of connections and the duration of their writes,
// and can close all of them.
//
// One address may use a third of the connections, and one always stays free for
// another address. Further connections are closed when they are accepted. No open
// connection is closed in their place: idle ones end by themselves (idleTimeout), and
// requests have limits of their own.
type boundedListener struct {
	net.Listener
	shares  *shares.Shares // in connections
	refused prometheus.Counter

	mu     sync.Mutex
	conns  map[*boundedConn]struct{}
	closed bool // closeConns was called
}

// newBoundedListener limits l to most connections, and registers its metrics.
func newBoundedListener(l net.Listener, most int, r prometheus.Registerer) *boundedListener {
	set := instrument.New(r)
	b := &boundedListener{
		Listener: l,
		shares:   shares.New(int64(most)),
		refused: set.Counter("eventd_connections_refused_total",
			"Connections refused above the share of their address."),
		conns: make(map[*boundedConn]struct{}),
	}
	set.GaugeFunc("eventd_connections", "Open connections of clients and of other replicas.", func() float64 { return float64(b.shares.InUse()) })
	set.GaugeFunc("eventd_connections_capacity", "Upper bound of connections; one address may use a third of it.",
		func() float64 { return float64(most) })
	utilruntime.Must(set.Err())
	return b
}

// Accept implements net.Listener.
func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &boundedConn{Conn: conn, listener: l, flow: shares.FlowOfAddress(conn.RemoteAddr().String())}
		switch added, err := l.add(c); {
		case err != nil:
			return nil, err
		case added:
			return c, nil
		}
	}
}

// add adds a connection, or closes it and returns false.
func (l *boundedListener) add(c *boundedConn) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		_ = c.Conn.Close()
		return false, net.ErrClosed
	case !l.shares.Acquire(c.flow, 1):
		l.refused.Inc()
		_ = c.Conn.Close()
		return false, nil
	}
	l.conns[c] = struct{}{}
	return true, nil
}

// remove removes a connection. It may be called again.
func (l *boundedListener) remove(c *boundedConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.conns[c]; ok {
		delete(l.conns, c)
		l.shares.Release(c.flow, 1)
	}
}

// closeConns closes all connections, idle or not, and all later ones.
func (l *boundedListener) closeConns() {
	l.mu.Lock()
	l.closed = true
	var conns []*boundedConn
	for c := range l.conns {
		conns = append(conns, c)
	}
	l.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
	}
}

// boundedConn sets a deadline for each write, unless the server has set an earlier one.
type boundedConn struct {
	net.Conn
	listener *boundedListener
	flow     shares.Flow

	unconsumed atomic.Int64 // bytes that came since the server read something, see maxUnconsumedBytes

	mu       sync.Mutex
	deadline time.Time // of writes, set by the server
}

var errUnconsumed = errors.New("the client sends too much that is not of a request")

// Read implements net.Conn.
func (c *boundedConn) Read(b []byte) (int, error) {
	if c.unconsumed.Load() > maxUnconsumedBytes {
		return 0, errUnconsumed
	}
	n, err := c.Conn.Read(b)
	c.unconsumed.Add(int64(n))
	return n, err
}

// boundedOf returns the connection of a boundedListener below TLS.
func boundedOf(c net.Conn) *boundedConn { return c.(*tls.Conn).NetConn().(*boundedConn) }

// consumed is called when the server has read something of a request.
func (c *boundedConn) consumed() { c.unconsumed.Store(0) }

// http1Body is the body of a request of HTTP/1.1.
type http1Body struct {
	io.ReadCloser
	bounded *boundedConn
}

// Read implements io.Reader.
func (r http1Body) Read(b []byte) (int, error) {
	n, err := r.ReadCloser.Read(b)
	if n > 0 {
		r.bounded.consumed()
	}
	return n, err
}

// Write implements net.Conn.
func (c *boundedConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	deadline := time.Now().Add(connWriteTimeout)
	if !c.deadline.IsZero() && c.deadline.Before(deadline) {
		deadline = c.deadline
	}
	_ = c.Conn.SetWriteDeadline(deadline)
	c.mu.Unlock()
	return c.Conn.Write(b)
}

// SetWriteDeadline implements net.Conn.
func (c *boundedConn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline = t
	if t.IsZero() {
		return nil // the next write sets one
	}
	return c.Conn.SetWriteDeadline(t)
}

// SetDeadline implements net.Conn.
func (c *boundedConn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

// Close implements net.Conn.
func (c *boundedConn) Close() error {
	c.listener.remove(c)
	return c.Conn.Close()
}
