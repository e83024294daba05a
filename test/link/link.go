// Package link forwards TCP connections to a server, until it is cut. A cut link
// behaves as a network does: nothing arrives, without any error, and what was sent
// arrives when the link is mended.
package link

import (
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// Link is safe for concurrent use. It ends with its test.
type Link struct {
	listener net.Listener
	ended    context.Context
	working  sync.WaitGroup
	carried  atomic.Int64

	mu     sync.Mutex
	target string
	passes chan struct{} // closed while the link is not cut
	left   int64         // bytes until it is cut; 0 is no limit
}

// New returns a link to target, a host and port, which may be set later.
func New(t testing.TB, target string) *Link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended, end := context.WithCancel(context.WithoutCancel(t.Context()))
	l := &Link{listener: listener, ended: ended, target: target, passes: make(chan struct{})}
	close(l.passes)
	l.working.Go(l.accept)
	t.Cleanup(func() {
		end()
		l.Mend()
		_ = listener.Close()
		l.working.Wait()
	})
	return l
}

// Address is the host and port where the link accepts connections.
func (l *Link) Address() string { return l.listener.Addr().String() }

// Lead sets the target of new connections.
func (l *Link) Lead(target string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.target = target
}

// Carried is the number of bytes so far, in both directions.
func (l *Link) Carried() int64 { return l.carried.Load() }

// Cut stops the link.
func (l *Link) Cut() { l.set(true, 0) }

// Mend ends Cut.
func (l *Link) Mend() { l.set(false, 0) }

// MendFor ends Cut until so many bytes have passed, about.
func (l *Link) MendFor(bytes int64) { l.set(false, bytes) }

// IsCut reports whether the link is cut.
func (l *Link) IsCut() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.isCut()
}

// isCut is IsCut. The mutex must be held.
func (l *Link) isCut() bool {
	select {
	case <-l.passes:
		return false
	default:
		return true
	}
}

func (l *Link) set(cut bool, left int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left = left
	switch {
	case cut == l.isCut():
	case cut:
		l.passes = make(chan struct{})
	default:
		close(l.passes)
	}
}

// passed counts bytes, and cuts the link after the last ones that may pass.
func (l *Link) passed(bytes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.left == 0 {
		return
	}
	if l.left -= int64(bytes); l.left <= 0 {
		l.left, l.passes = 0, make(chan struct{})
	}
}

// pass waits until the link is not cut, and returns the target.
func (l *Link) pass() string {
	l.mu.Lock()
	passes := l.passes
	l.mu.Unlock()
	<-passes
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.target
}

func (l *Link) accept() {
	for {
		front, err := l.listener.Accept()
		if err != nil {
			return // closed
		}
		l.working.Go(func() { l.serve(front) })
	}
}

// serve forwards one connection until it ends, in both directions.
func (l *Link) serve(front net.Conn) {
	defer front.Close()
	defer context.AfterFunc(l.ended, func() { _ = front.Close() })()
	var dialer net.Dialer
	back, err := dialer.DialContext(l.ended, "tcp", l.pass())
	if err != nil {
		return
	}
	defer back.Close()
	defer context.AfterFunc(l.ended, func() { _ = back.Close() })()
	var both sync.WaitGroup
	both.Go(func() { l.carry(back, front) })
	both.Go(func() { l.carry(front, back) })
	both.Wait()
}

// carry forwards one direction. An end is forwarded as such, an error closes both
// connections.
func (l *Link) carry(to, from net.Conn) {
	_, err := io.Copy(writer{l, to}, from)
	l.pass()
	if err != nil {
		_, _ = to.Close(), from.Close()
		return
	}
	_ = to.(*net.TCPConn).CloseWrite()
}

// writer writes while the link is not cut.
type writer struct {
	*Link
	to net.Conn
}

func (w writer) Write(p []byte) (int, error) {
	w.pass()
	n, err := w.to.Write(p)
	w.carried.Add(int64(n))
	w.passed(n)
	return n, err
}
