package app

//lint:file-ignore SA1019 nothing else of x/net/http2 says what waits to be written.

import (
	"crypto/tls"
	"sync"

	xhttp2 "golang.org/x/net/http2"
)

// mostWaiting is how many answers wait behind a write while more is read. The server itself has one wait at the begin.
const mostWaiting = 1

// http2Conn is a connection of HTTP/2, and the scheduler of what is written to it. While answers wait behind a write,
// nothing is read. Without that, a client that reads nothing has up to 10,000 answers to pings or to wrong headers
// queue, each with the name of such a header.
type http2Conn struct {
	*tls.Conn
	bounded *boundedConn
	xhttp2.WriteScheduler

	mu      sync.Mutex
	changed sync.Cond
	waiting int // answers, or more if those of a stream that was closed were never written
	closed  bool
}

func newHTTP2Conn(c *tls.Conn) *http2Conn {
	h := &http2Conn{Conn: c, bounded: boundedOf(c), WriteScheduler: xhttp2.NewRandomWriteScheduler()}
	h.changed.L = &h.mu
	return h
}

// Push implements xhttp2.WriteScheduler.
func (c *http2Conn) Push(f xhttp2.FrameWriteRequest) {
	c.WriteScheduler.Push(f)
	if f.DataSize() == 0 {
		c.change(func() { c.waiting++ })
	}
}

// Pop implements xhttp2.WriteScheduler.
func (c *http2Conn) Pop() (xhttp2.FrameWriteRequest, bool) {
	f, ok := c.WriteScheduler.Pop()
	switch {
	case !ok:
		c.change(func() { c.waiting = 0 })
	case f.DataSize() == 0:
		c.change(func() { c.waiting-- })
	}
	return f, ok
}

// Read implements net.Conn.
func (c *http2Conn) Read(b []byte) (int, error) {
	c.mu.Lock()
	for c.waiting > mostWaiting && !c.closed {
		c.changed.Wait()
	}
	c.mu.Unlock()
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.bounded.consumed()
	}
	return n, err
}

// Close implements net.Conn.
func (c *http2Conn) Close() error {
	c.change(func() { c.closed = true })
	return c.Conn.Close()
}

func (c *http2Conn) change(do func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	do()
	c.changed.Signal()
}
