package daemon

import (
	"net"
	"sync"
	"time"
)

// connWriteTimeout is how long what is written to a connection may take to be
// taken by the client's side: 16 KiB at most at a time. A stream of HTTP/2 has a
// deadline of its own for its answer (pkg/intake), which nobody can act upon while
// the connection under it takes nothing.
const connWriteTimeout = 10 * time.Second

// boundedListener accepts connections whose writes end, and that can all be closed.
type boundedListener struct {
	net.Listener

	mu     sync.Mutex
	conns  map[*boundedConn]struct{}
	closed bool // all of them
}

func newBoundedListener(l net.Listener) *boundedListener {
	return &boundedListener{Listener: l, conns: make(map[*boundedConn]struct{})}
}

// Accept implements net.Listener.
func (l *boundedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &boundedConn{Conn: conn, listener: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		_ = conn.Close()
		return nil, net.ErrClosed
	}
	l.conns[c] = struct{}{}
	return c, nil
}

// closeConns closes every connection, whatever is going on there.
func (l *boundedListener) closeConns() {
	l.mu.Lock()
	conns := l.conns
	l.conns, l.closed = make(map[*boundedConn]struct{}), true
	l.mu.Unlock()
	for c := range conns {
		_ = c.Conn.Close()
	}
}

// boundedConn gives each write a deadline, unless the server has set an earlier one.
type boundedConn struct {
	net.Conn
	listener *boundedListener

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
	c.listener.mu.Lock()
	delete(c.listener.conns, c)
	c.listener.mu.Unlock()
	return c.Conn.Close()
}
