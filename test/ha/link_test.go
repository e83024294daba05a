package ha

import (
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/eventd/eventd/test/await"
)

// link forwards the connections to a process, unless it is cut. A cut link behaves as
// a network does: nothing arrives, without any error, and what was sent arrives when
// the link is mended. It ends with its test.
type link struct {
	listener net.Listener
	working  sync.WaitGroup

	mu     sync.Mutex
	target string
	passes chan struct{} // closed while the link is not cut
	ended  bool
	conns  map[net.Conn]struct{}
}

// newLink returns a link to target, a host and port, which may be set later.
func newLink(t *testing.T, target string) *link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &link{listener: listener, target: target, passes: closed(), conns: map[net.Conn]struct{}{}}
	l.working.Go(l.accept)
	t.Cleanup(l.close)
	return l
}

func closed() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

func (l *link) address() string { return l.listener.Addr().String() }

// lead sets the target of new connections.
func (l *link) lead(target string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.target = target
}

func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.passes:
		l.passes = make(chan struct{})
	default:
	}
}

func (l *link) mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.passes:
	default:
		close(l.passes)
	}
}

// close ends the link and all its connections.
func (l *link) close() {
	l.mend()
	l.mu.Lock()
	l.ended = true
	for c := range l.conns {
		_ = c.Close()
	}
	l.mu.Unlock()
	_ = l.listener.Close()
	l.working.Wait()
}

func (l *link) accept() {
	for {
		c, err := l.listener.Accept()
		if err != nil {
			return // closed
		}
		l.working.Go(func() { l.serve(c) })
	}
}

// serve forwards one connection until it ends.
func (l *link) serve(front net.Conn) {
	if !l.adopt(front) {
		return
	}
	defer l.drop(front)
	<-l.passing()
	l.mu.Lock()
	target := l.target
	l.mu.Unlock()
	back, err := net.DialTimeout("tcp", target, 10*time.Second)
	if err != nil || !l.adopt(back) {
		return
	}
	defer l.drop(back)
	var both sync.WaitGroup
	both.Go(func() { l.carry(back, front) })
	both.Go(func() { l.carry(front, back) })
	both.Wait()
}

// carry forwards one direction, including its end.
func (l *link) carry(to, from net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		<-l.passing()
		if n > 0 {
			if _, writeErr := to.Write(buffer[:n]); writeErr != nil {
				_ = from.Close()
				return
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			_ = to.(*net.TCPConn).CloseWrite()
			return
		case err != nil:
			_ = to.Close()
			return
		}
	}
}

func (l *link) passing() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.passes
}

// adopt adds a connection for close, or closes it if the link has ended.
func (l *link) adopt(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		_ = c.Close()
		return false
	}
	l.conns[c] = struct{}{}
	return true
}

func (l *link) drop(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
	_ = c.Close()
}

func TestLinkThatIsCutDeliversWhenItIsMended(t *testing.T) {
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer echo.Close()
	go func() {
		for {
			c, err := echo.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	l := newLink(t, echo.Addr().String())
	dial := func() net.Conn {
		c, err := net.Dial("tcp", l.address())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	say := func(c net.Conn, word string) {
		if _, err := c.Write([]byte(word)); err != nil {
			t.Fatal(err)
		}
	}
	hear := func(c net.Conn, word string) {
		t.Helper()
		got := make([]byte, len(word))
		_ = c.SetReadDeadline(time.Now().Add(await.Timeout))
		if _, err := io.ReadFull(c, got); err != nil || string(got) != word {
			t.Fatalf("heard %q (%v), want %q", got, err, word)
		}
	}
	before := dial()
	say(before, "one")
	hear(before, "one")
	l.cut()
	say(before, "two")
	meanwhile := dial()
	say(meanwhile, "three")
	for _, c := range []net.Conn{before, meanwhile} {
		_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		if n, err := c.Read(make([]byte, 1)); n > 0 || !isTimeout(err) {
			t.Errorf("read %d bytes (%v) over a link that is cut", n, err)
		}
	}
	l.mend()
	hear(before, "two")
	hear(meanwhile, "three")
	if err := before.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, before); err != nil {
		t.Errorf("the end did not arrive: %v", err)
	}
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}
