package sinktest

import (
	"context"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"
)

// Network forwards bytes between clients and an apiserver, and counts connections. It can
// lose them without an error, as if the other end had crashed.
type Network struct {
	listener net.Listener
	backend  string
	Accepted atomic.Int64
	Open     atomic.Int64
	Lost     atomic.Int64 // bytes

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

// Forward starts a Network and returns the configuration that leads to it.
func Forward(t *testing.T, config *rest.Config) (*Network, *rest.Config) {
	t.Helper()
	backend, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &Network{listener: listener, backend: backend.Host}
	f.copies.Go(f.accept)
	t.Cleanup(f.close)
	config = rest.CopyConfig(config)
	config.Host = "https://" + listener.Addr().String()
	return f, config
}

func (f *Network) accept() {
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
		f.Accepted.Add(1)
		f.add(&link{client: client, server: server})
	}
}

func (f *Network) add(l *link) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		l.close()
		return
	}
	f.links = append(f.links, l)
	f.Open.Add(1)
	f.copies.Go(func() {
		f.copy(l.server, l.client, &l.up)
		l.close() // the client has gone
		f.Open.Add(-1)
	})
	f.copies.Go(func() {
		f.copy(l.client, l.server, &l.down)
		if !l.down.Load() {
			l.close()
		}
	})
}

// copy copies from src to dst until src ends, and discards the bytes once vanishes is
// set.
func (f *Network) copy(dst io.Writer, src io.Reader, vanishes *atomic.Bool) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := src.Read(buffer)
		if vanishes.Load() {
			f.Lost.Add(int64(n))
		} else if _, failed := dst.Write(buffer[:n]); failed != nil {
			return
		}
		if err != nil {
			return
		}
	}
}

// Lose makes the existing connections dead without an error: nothing arrives from the
// apiserver any more and, if up is set, nothing arrives there.
func (f *Network) Lose(up bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, l := range f.links {
		l.down.Store(true)
		l.up.Store(up)
	}
}

func (f *Network) close() {
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

// DialOnce returns a copy of config whose first dial succeeds and whose others end with an
// error, and the number of dials.
func DialOnce(config *rest.Config, others func() error) (*rest.Config, *atomic.Int64) {
	config, dials := rest.CopyConfig(config), new(atomic.Int64)
	config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		if dials.Add(1) > 1 {
			return nil, others()
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	return config, dials
}
