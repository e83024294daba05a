package sinktest

import (
	"context"
	"net"
	"sync"
	"sync/atomic"

	"k8s.io/client-go/rest"
)

// Network makes the connections of clients, and counts them. It can lose them without an
// error, as if the other end had crashed.
type Network struct {
	Dials atomic.Int64
	Open  atomic.Int64
	Lost  atomic.Int64 // bytes
	// Fail returns the error of a dial, from 1 on, or nil. A nil Fail never does.
	Fail func(dial int64) error

	mu    sync.Mutex
	conns []*conn
}

// Over returns a copy of config whose connections are those of the network.
func (n *Network) Over(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Dial = n.dial
	return config
}

func (n *Network) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if dial := n.Dials.Add(1); n.Fail != nil {
		if err := n.Fail(dial); err != nil {
			return nil, err
		}
	}
	dialed, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: dialed, network: n, closed: make(chan struct{})}
	n.Open.Add(1)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.conns = append(n.conns, c)
	return c, nil
}

// Lose makes the first connections dead without an error, of those made until now: nothing
// arrives from the apiserver any more and, if up is set, nothing arrives there.
func (n *Network) Lose(first int, up bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.conns[:min(first, len(n.conns))] {
		c.down.Store(true)
		c.up.Store(up)
	}
}

// conn is one connection. up and down are whether bytes vanish, in either direction.
type conn struct {
	net.Conn
	network  *Network
	up, down atomic.Bool
	once     sync.Once
	closed   chan struct{}
}

func (c *conn) Read(p []byte) (int, error) {
	for {
		n, err := c.Conn.Read(p)
		if !c.down.Load() {
			return n, err
		}
		c.network.Lost.Add(int64(n))
		if err != nil { // its end vanishes, too
			<-c.closed
			return 0, net.ErrClosed
		}
	}
}

func (c *conn) Write(p []byte) (int, error) {
	if c.up.Load() {
		c.network.Lost.Add(int64(len(p)))
		return len(p), nil
	}
	return c.Conn.Write(p)
}

func (c *conn) Close() error {
	c.once.Do(func() {
		c.network.Open.Add(-1)
		close(c.closed)
	})
	return c.Conn.Close()
}
