package intake

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/net/http2"
)

// dial is a connection being made.
type dial struct {
	done chan struct{}
	// After done:
	err   error
	ended time.Time
}

// verify ends a handshake with anybody but the leader, before anything is sent.
func (l leaderAddress) verify(state tls.ConnectionState) error {
	if len(state.PeerCertificates) == 0 {
		return errors.New("no certificate")
	}
	if got := Fingerprint(state.PeerCertificates[0]); got != l.certificateSHA256 {
		return fmt.Errorf("%w: its fingerprint is %s, not %s", errCertificate, got, l.certificateSHA256)
	}
	if state.NegotiatedProtocol != http2.NextProtoTLS {
		return fmt.Errorf("the protocol is %q, not %q", state.NegotiatedProtocol, http2.NextProtoTLS)
	}
	return nil
}

func (d *dial) over() bool {
	select {
	case <-d.done:
		return true
	default:
		return false
	}
}

// dialed returns the connection that is being made; a new one after a pause, if the
// last attempt has failed. The mutex must be held.
func (c *connections) dialed() (*dial, error) {
	if c.dial != nil && !c.dial.over() {
		return c.dial, nil
	}
	if c.dial != nil && c.dial.err != nil && time.Since(c.dial.ended) < connectPause {
		return nil, c.dial.err
	}
	c.dial = &dial{done: make(chan struct{})}
	d := c.dial
	c.work.Go(func() { c.connect(d) })
	return d, nil
}

// connect makes a connection, and lets those go on who wait for it.
func (c *connections) connect(d *dial) {
	conn, err := c.newConnection()
	c.mu.Lock()
	if err == nil {
		c.conns = append(c.conns, &connection{ClientConn: conn, left: c.lifetime, idle: time.Now()})
	}
	d.err, d.ended = err, time.Now()
	close(d.done)
	unused := c.unused() // if it comes too late
	c.mu.Unlock()
	closeAll(unused)
}

func (c *connections) newConnection() (*http2.ClientConn, error) {
	ctx, cancel := context.WithTimeoutCause(c.retired, connectTimeout, fmt.Errorf("not connected within %s", connectTimeout))
	defer cancel()
	plain, err := (&net.Dialer{}).DialContext(ctx, "tcp", c.leader.hostPort)
	if err != nil {
		return nil, err
	}
	// Without a server name: for a name the leader may have a certificate that is
	// not the one that it announces.
	secured := tls.Client(plain, c.transport.TLSClientConfig)
	if err := secured.HandshakeContext(ctx); err != nil {
		_ = plain.Close()
		return nil, err
	}
	conn, err := c.transport.NewClientConn(secured)
	if err != nil {
		_ = secured.Close()
		return nil, err
	}
	return conn, nil
}
