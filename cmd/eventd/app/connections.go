package app

import (
	"net"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/eventd/eventd/internal/shares"
)

// connWriteTimeout is how long what is written to a connection may take to be
// taken by the client's side: 16 KiB at most at a time. A stream of HTTP/2 has a
// deadline of its own for its answer (pkg/intake), which nobody can act upon while
// the connection under it takes nothing.
const connWriteTimeout = 10 * time.Second

const (
	// ConnectionBytes is what a connection takes on which nothing goes on, and
	// MaxConnectionBytes what it takes at most, before a request is made: while its
	// client sends the headers of one, or its part of the handshake.
	// TestConnectionsTakeNoMoreThanIsSaid measures both.
	ConnectionBytes    = 56 << 10
	MaxConnectionBytes = 288 << 10
)

// boundedListener accepts so many connections, whose writes end, and that can all be
// closed.
//
// Connections are shared among addresses as places are among tenants: one address has
// a third of them at most, and there is always one left for another address. A
// connection above that is closed as soon as it is accepted. None that is open is
// closed in its place: those that are idle end by themselves (idleTimeout), and
// whether one that is not is of use only its requests can tell, which have limits of
// their own. So what a client has established stays, whatever comes after it.
type boundedListener struct {
	net.Listener
	shares  *shares.Shares // in connections
	refused prometheus.Counter

	mu     sync.Mutex
	conns  map[*boundedConn]struct{}
	closed bool // all of them
}

// newBoundedListener registers its metrics.
func newBoundedListener(l net.Listener, most int, r prometheus.Registerer) *boundedListener {
	b := &boundedListener{
		Listener: l,
		shares:   shares.New(int64(most)),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "eventd_connections_refused_total",
			Help: "Connections refused above the share of their address.",
		}),
		conns: make(map[*boundedConn]struct{}),
	}
	r.MustRegister(b.refused,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "eventd_connections",
			Help: "Open connections of clients and of other replicas.",
		}, func() float64 { return float64(b.shares.InUse()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "eventd_connections_capacity",
			Help: "Upper bound of connections; one address may use a third of it.",
		}, func() float64 { return float64(most) }),
	)
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
		switch taken, err := l.take(c); {
		case err != nil:
			return nil, err
		case taken:
			return c, nil
		}
	}
}

// take closes a connection that it does not take.
func (l *boundedListener) take(c *boundedConn) (bool, error) {
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

// drop forgets a connection, once.
func (l *boundedListener) drop(c *boundedConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.conns[c]; ok {
		delete(l.conns, c)
		l.shares.Release(c.flow, 1)
	}
}

// closeConns closes every connection, whatever is going on there, and each that comes.
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

// boundedConn gives each write a deadline, unless the server has set an earlier one.
type boundedConn struct {
	net.Conn
	listener *boundedListener
	flow     shares.Flow

	mu       sync.Mutex
	deadline time.Time // for writes, the server's
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
		return nil // of the next write
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
	c.listener.drop(c)
	return c.Conn.Close()
}
