package relay

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/eventd/eventd/internal/notify"
	"github.com/eventd/eventd/pkg/election"
)

const (
	// connectTimeout is for one attempt, TLS handshake included.
	connectTimeout = 3 * time.Second
	// connectPause is between one attempt and the next. Without it, a leader that refuses
	// all requests would be sent one handshake after the other.
	connectPause = 20 * time.Millisecond
)

var errRetired = errors.New("it no longer leads")

// http2 is the protocol that is spoken with the leader.
const http2 = "h2"

// tlsConfig is without a server name: for a name, the leader may have another certificate
// than the one that it announces.
func tlsConfig(leader election.Announcement) *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		NextProtos:         []string{http2},
		InsecureSkipVerify: true, // whoever may write the Lease announces the certificate
		VerifyConnection: func(state tls.ConnectionState) error {
			if err := leader.Verify(state); err != nil {
				return err
			}
			if state.NegotiatedProtocol != http2 {
				return fmt.Errorf("the protocol is %q, not %q", state.NegotiatedProtocol, http2)
			}
			return nil
		},
	}
}

// dial makes a connection for the transport. It goes on without the request that caused
// it: others wait for the connection too.
func (c *connections) dial(context.Context, string, string) (conn net.Conn, err error) {
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.refusal, c.refused = err, time.Now()
	}()
	if err := c.beginDial(); err != nil {
		return nil, err
	}
	conn, err = c.connect()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dialErr, c.dialEnded = err, time.Now()
	if err != nil {
		c.open--
	}
	return conn, err
}

// beginDial counts a connection. One that the leader has shut down counts until one of
// the two closes it.
func (c *connections) beginDial() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch pause := time.Since(c.dialEnded) < connectPause; {
	case c.retired.Err() != nil:
		return errRetired
	case pause && c.dialErr != nil:
		return c.dialErr
	case pause, c.open >= c.limit:
		return errFull // for now
	}
	c.open++
	return nil
}

func (c *connections) connect() (net.Conn, error) {
	ctx, cancel := context.WithTimeoutCause(c.retired, connectTimeout, fmt.Errorf("not connected within %s", connectTimeout))
	defer cancel()
	plain, err := (&net.Dialer{}).DialContext(ctx, "tcp", c.server.Address)
	if err != nil {
		return nil, err
	}
	conn := &countedConn{Conn: plain}
	secured := tls.Client(conn, tlsConfig(c.server))
	if err := secured.HandshakeContext(ctx); err != nil {
		_ = plain.Close()
		return nil, err
	}
	// The transport closes only connections that it knows to be idle.
	stop := context.AfterFunc(c.closed, func() { _ = plain.Close() })
	conn.closed = sync.OnceFunc(func() {
		stop()
		c.mu.Lock()
		c.open--
		c.mu.Unlock()
		notify.Wake(c.slotFreed)
	})
	return secured, nil
}

// countedConn is a connection that counts as open until it is closed.
type countedConn struct {
	net.Conn
	closed func() // nil until the handshake is done
}

// Close implements net.Conn.
func (c *countedConn) Close() error {
	if c.closed != nil {
		c.closed()
	}
	return c.Conn.Close()
}
