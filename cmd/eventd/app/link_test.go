package app

import (
	"net"
	"net/url"
	"sync"
	"testing"
)

// link is a TCP proxy that can stop forwarding, on open and new connections, without
// an error on either side.
type link struct {
	listener net.Listener
	work     sync.WaitGroup

	mu          sync.Mutex
	to          string
	open        chan struct{} // closed while it forwards
	connections []net.Conn
	ended       bool
}

func newLink(t *testing.T, host string) *link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &link{listener: listener, open: make(chan struct{})}
	l.connect(t, host)
	close(l.open)
	l.work.Go(l.accept)
	t.Cleanup(l.end)
	return l
}

// connect sets the server of new connections.
func (l *link) connect(t *testing.T, host string) {
	t.Helper()
	to, err := url.Parse(host)
	if err != nil {
		t.Fatal(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.to = to.Host
}

// host returns the URL of the proxy.
func (l *link) host() string { return "https://" + l.listener.Addr().String() }

func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = make(chan struct{})
}

func (l *link) restore() {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.open:
	default:
		close(l.open)
	}
}

// end ends all connections.
func (l *link) end() {
	_ = l.listener.Close()
	l.restore()
	l.mu.Lock()
	l.ended = true
	for _, c := range l.connections {
		_ = c.Close()
	}
	l.mu.Unlock()
	l.work.Wait()
}

func (l *link) accept() {
	for {
		in, err := l.listener.Accept()
		if err != nil {
			return
		}
		l.work.Go(func() {
			l.mu.Lock()
			to := l.to
			l.mu.Unlock()
			out, err := net.Dial("tcp", to)
			if err != nil {
				_ = in.Close()
				return
			}
			l.keep(in, out)
			l.work.Go(func() { l.forward(in, out) })
			l.forward(out, in)
		})
	}
}

func (l *link) keep(connections ...net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.connections = append(l.connections, connections...)
	if l.ended {
		for _, c := range connections {
			_ = c.Close()
		}
	}
}

func (l *link) forward(from, to net.Conn) {
	defer to.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		l.mu.Lock()
		open := l.open
		l.mu.Unlock()
		<-open
		if _, failed := to.Write(buffer[:n]); err != nil || failed != nil {
			return
		}
	}
}
