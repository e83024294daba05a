package faultproxy

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
)

// conn is a client's connection, which can be reset and held still.
type conn struct {
	net.Conn
	gate *gate
	gone func(*conn)

	once   sync.Once
	closed chan struct{}
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.gate.pass(c.closed) // what came in the meantime is held too
	return n, err
}

func (c *conn) Write(b []byte) (int, error) {
	c.gate.pass(c.closed)
	return c.Conn.Write(b)
}

func (c *conn) Close() error {
	err := net.ErrClosed
	c.once.Do(func() {
		close(c.closed)
		c.gone(c)
		err = c.Conn.Close()
	})
	return err
}

// reset closes the connection so that the client sees a TCP RST.
func (c *conn) reset() {
	c.Conn.(*net.TCPConn).SetLinger(0)
	c.Close()
}

// gate is open, or holds those that want to pass. The zero gate is open.
type gate struct {
	mu     sync.Mutex
	opened chan struct{} // nil while open
}

// pass waits until the gate is open, or quit is closed.
func (g *gate) pass(quit <-chan struct{}) {
	g.mu.Lock()
	opened := g.opened
	g.mu.Unlock()
	if opened == nil {
		return
	}
	select {
	case <-opened:
	case <-quit:
	}
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.opened == nil {
		g.opened = make(chan struct{})
	}
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.opened != nil {
		close(g.opened)
		g.opened = nil
	}
}

type connKey struct{}

// withConn is a http.Server's ConnContext.
func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c.(*tls.Conn).NetConn())
}

// connOf returns the connection that a request came on.
func connOf(r *http.Request) *conn { return r.Context().Value(connKey{}).(*conn) }
