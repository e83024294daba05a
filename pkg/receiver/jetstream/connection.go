package jetstream

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/eventd/eventd/pkg/config/v1alpha1"
	receiverconnection "github.com/eventd/eventd/pkg/receiver/internal/connection"
)

// connectTimeout is for one server: for the dial, and for what the client does after it.
const connectTimeout = 3 * time.Second

// connection is used until its first failure. The client's own reconnecting is off, and with it its
// buffer of what to send after it: Send sends that again, in order.
type connection struct {
	nc *nats.Conn
	js natsjs.JetStream
	// failed is closed when nothing more will be acknowledged.
	failed chan struct{}

	mu      sync.Mutex
	cause   error    // of failed
	socket  net.Conn // the latest
	aborted bool
	secured bool // a TLS handshake has succeeded
}

// connect connects to one of the servers, and reads all files of the configuration.
func connect(ctx context.Context, config v1alpha1.JetStream) (*connection, error) {
	c := &connection{failed: make(chan struct{})}
	options, err := c.options(ctx, config)
	if err != nil {
		return nil, err
	}
	keep := context.AfterFunc(ctx, c.abort)
	c.nc, err = nats.Connect(config.URL, options...)
	if !keep() && err == nil {
		c.close()
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, c.explain(ctx, c.refused(err))
	}
	if c.js, err = natsjs.New(c.nc); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

func (c *connection) options(ctx context.Context, config v1alpha1.JetStream) ([]nats.Option, error) {
	var secure *tls.Config
	if config.TLS != nil || strings.Contains(config.URL, "tls://") {
		var err error
		if secure, err = receiverconnection.TLS(config.TLS); err != nil {
			return nil, err
		}
		secure.VerifyConnection = func(tls.ConnectionState) error { // after the certificate is verified
			c.setSecured()
			return nil
		}
	}
	options := []nats.Option{
		nats.Name("eventd"),
		nats.NoReconnect(),
		nats.IgnoreDiscoveredServers(), // the credentials are for those that are configured
		nats.SkipHostLookup(),          // the dialer resolves names, bounded by ctx
		nats.SetCustomDialer(dialer{c, ctx}),
		nats.Timeout(connectTimeout),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { c.fail(err) }),
		nats.ClosedHandler(func(nc *nats.Conn) { c.fail(nc.LastError()) }),
	}
	if config.CredentialsFile != "" {
		options = append(options, nats.UserCredentials(config.CredentialsFile))
	}
	if secure != nil {
		options = append(options, nats.Secure(secure))
	}
	return options, nil
}

// dialer implements nats.CustomDialer.
type dialer struct {
	connection *connection
	ctx        context.Context // of the call that connects
}

func (d dialer) Dial(network, address string) (net.Conn, error) {
	socket, err := (&net.Dialer{Timeout: connectTimeout}).DialContext(d.ctx, network, address)
	if err == nil {
		d.connection.use(socket)
	}
	return socket, err
}

// use sets the socket that abort closes, without a lock of the client: that holds its own while it
// writes, and a server that reads nothing blocks writes.
func (c *connection) use(socket net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.aborted {
		socket.Close()
	}
	c.socket, c.secured = socket, false
}

func (c *connection) setSecured() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.secured = true
}

// refused names TLS as the reason of a connection that the server has closed right after a
// handshake: with TLS 1.3, it checks the certificate of the client only then.
func (c *connection) refused(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.secured && (errors.Is(err, io.EOF) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)) {
		return fmt.Errorf("%w: the server has closed the connection after the handshake: %w", nats.ErrTLS, err)
	}
	return err
}

// abort closes the socket, and discards what was not sent. It ends all calls of the client.
func (c *connection) abort() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.aborted = true
	if c.socket == nil {
		return
	}
	if tcp, ok := c.socket.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	c.socket.Close()
}

// close releases everything. Nothing in it waits for the server.
func (c *connection) close() {
	c.abort()
	c.nc.Close()
}

// fail records the first failure.
func (c *connection) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause != nil {
		return
	}
	if c.cause = err; err == nil {
		c.cause = nats.ErrConnectionClosed
	}
	close(c.failed)
}

// failure returns why the connection is of no more use, or nil.
func (c *connection) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause == nil && c.aborted {
		return nats.ErrConnectionClosed
	}
	return c.cause
}

// explain returns the reason behind an error: that ctx has ended, or a failure of the connection.
func (c *connection) explain(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	if cause := c.failure(); cause != nil {
		return fmt.Errorf("the connection failed: %w", cause)
	}
	return err
}
