package app

import (
	"context"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
)

// link is a TCP proxy that can stop forwarding, on open and new connections, without
// an error on either side.
type link struct {
	listener net.Listener
	to       atomic.Value // the address for new connections
	isCut    atomic.Bool
	gate     sync.RWMutex // locked while it is cut
	work     sync.WaitGroup
}

func newLink(t *testing.T, host string) *link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &link{listener: listener}
	l.connect(t, host)
	l.work.Go(func() {
		for {
			in, err := listener.Accept()
			if err != nil {
				return
			}
			l.work.Go(func() { l.serve(t.Context(), in) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		l.restore()
		l.work.Wait()
	})
	return l
}

// connect sets the server of new connections.
func (l *link) connect(t *testing.T, host string) {
	t.Helper()
	to, err := url.Parse(host)
	if err != nil {
		t.Fatal(err)
	}
	l.to.Store(to.Host)
}

// host returns the URL of the proxy.
func (l *link) host() string { return "https://" + l.listener.Addr().String() }

func (l *link) cut() {
	l.isCut.Store(true)
	l.gate.Lock()
}

func (l *link) restore() {
	if l.isCut.Swap(false) {
		l.gate.Unlock()
	}
}

// serve forwards a connection until it or the test ends.
func (l *link) serve(ctx context.Context, in net.Conn) {
	defer in.Close()
	out, err := net.Dial("tcp", l.to.Load().(string))
	if err != nil {
		return
	}
	end := func() {
		_ = in.Close()
		_ = out.Close()
	}
	defer context.AfterFunc(ctx, end)()
	l.work.Go(func() {
		defer end()
		l.forward(in, out)
	})
	defer end()
	l.forward(out, in)
}

func (l *link) forward(from, to net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		l.gate.RLock()
		//lint:ignore SA2001 it waits while the link is cut
		l.gate.RUnlock()
		if _, failed := to.Write(buffer[:n]); err != nil || failed != nil {
			return
		}
	}
}
