package sink

import (
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"
)

// forwarder stands between clients and an apiserver, hands on bytes, and counts
// connections. It can be the network behind which the other end has gone.
type forwarder struct {
	listener net.Listener
	backend  string
	accepted atomic.Int64
	open     atomic.Int64
	lost     atomic.Int64 // bytes

	mu     sync.Mutex
	links  []*link
	closed bool
	copies sync.WaitGroup
}

// link is one connection, in two halves.
type link struct {
	client, server net.Conn
	// up and down are whether bytes vanish, in either direction.
	up, down atomic.Bool
}

// forward starts a forwarder and returns the configuration that leads to it.
func forward(t *testing.T, config *rest.Config) (*forwarder, *rest.Config) {
	t.Helper()
	backend, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &forwarder{listener: listener, backend: backend.Host}
	f.copies.Go(f.accept)
	t.Cleanup(f.close)
	config = rest.CopyConfig(config)
	config.Host = "https://" + listener.Addr().String()
	return f, config
}

func (f *forwarder) accept() {
	for {
		client, err := f.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", f.backend)
		if err != nil {
			client.Close()
			continue
		}
		f.accepted.Add(1)
		f.add(&link{client: client, server: server})
	}
}

func (f *forwarder) add(l *link) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		l.close()
		return
	}
	f.links = append(f.links, l)
	f.open.Add(1)
	f.copies.Go(func() {
		f.copy(l.server, l.client, &l.up)
		l.close() // the client has gone
		f.open.Add(-1)
	})
	f.copies.Go(func() {
		f.copy(l.client, l.server, &l.down)
		if !l.down.Load() {
			l.close()
		}
	})
}

// copy hands on what comes from src until that ends, and throws it away once
// vanishes is set.
func (f *forwarder) copy(dst io.Writer, src io.Reader, vanishes *atomic.Bool) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := src.Read(buffer)
		if vanishes.Load() {
			f.lost.Add(int64(n))
		} else if _, failed := dst.Write(buffer[:n]); failed != nil {
			return
		}
		if err != nil {
			return
		}
	}
}

// lose makes the connections that exist dead without a word: nothing comes from
// the apiserver any more, and if up is set, nothing gets there.
func (f *forwarder) lose(up bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, l := range f.links {
		l.down.Store(true)
		l.up.Store(up)
	}
}

func (f *forwarder) close() {
	f.listener.Close()
	f.mu.Lock()
	f.closed = true
	for _, l := range f.links {
		l.close()
	}
	f.mu.Unlock()
	f.copies.Wait()
}

func (l *link) close() {
	l.client.Close()
	l.server.Close()
}
