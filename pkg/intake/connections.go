package intake

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/http2"
)

const (
	// streams is how many requests an eventd takes at once on a connection by
	// default, as a kube-apiserver, and what is assumed until it has said so. There
	// are connections for all that may be in flight; what finds no room all the
	// same, since a leader takes fewer, waits for it.
	streams = 100
	// connectTimeout is for one attempt, TLS handshake included.
	connectTimeout = 3 * time.Second
	// connectPause is between an attempt that failed and the next one.
	connectPause = 20 * time.Millisecond
	// A leader that is gone without a word is noticed within the sum of these.
	pingAfter   = 2 * time.Second // of silence
	pingTimeout = 3 * time.Second
)

// errCertificate is that somebody else serves at the leader's address.
var errCertificate = errors.New("its certificate is not the one that is announced")

// errFull is that a leader takes no more requests at once.
var errFull = errors.New("all connections to it are in use")

// connections are those to one leader, who is an address with a certificate: a
// new certificate makes another leader, so what was connected to the former one
// is never used for it. All requests share few connections, and wait together
// for one that is being made; unlike in a pool of net/http, that wait ends with
// the patience of each.
//
// Their goroutines are that of a connection being made, and those of each
// connection. They end after retire, with the last request that is under way.
type connections struct {
	leader    leaderAddress
	transport *http2.Transport
	retired   context.Context
	cancel    context.CancelFunc
	work      *sync.WaitGroup // making and closing connections
	max       int             // connections
	room      news            // of requests that have ended

	mu      sync.Mutex
	users   int // requests under way
	conns   []*http2.ClientConn
	dial    *dial // the last one, nil before it
	verdict verdict
}

// dial is a connection being made.
type dial struct {
	done chan struct{}
	// After done:
	err   error
	ended time.Time
}

func connectionsTo(leader leaderAddress, work *sync.WaitGroup, limit int) *connections {
	c := &connections{leader: leader, work: work, max: limit}
	c.retired, c.cancel = context.WithCancel(context.Background())
	c.transport = &http2.Transport{
		ConnPool:           c,
		DisableCompression: true, // what the leader answers goes on as it is
		ReadIdleTimeout:    pingAfter,
		PingTimeout:        pingTimeout,
		TLSClientConfig: &tls.Config{
			MinVersion: tls.VersionTLS12,
			NextProtos: []string{http2.NextProtoTLS},
			// The fingerprint is what is verified, and all that is: the leader's
			// certificate may be of its own making, for names that are not known
			// here. What is announced comes from who may write the Lease.
			InsecureSkipVerify: true,
			VerifyConnection:   leader.verify,
		},
	}
	return c
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

// use lets a request be made, and done must be called when its answer has been
// read. It is false after retire.
func (c *connections) use() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.retired.Err() != nil {
		return false
	}
	c.users++
	return true
}

func (c *connections) done() {
	c.mu.Lock()
	c.users--
	unused := c.unused()
	c.mu.Unlock()
	closeAll(unused)
	c.room.tell()
}

// retire ends all attempts to connect, and closes the connections when the
// requests that are under way have their answers.
func (c *connections) retire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cancel()
	unused := c.unused()
	c.work.Go(func() { closeAll(unused) }) // a broken one takes a while
}

// unused takes away the connections that nobody is to use any more.
func (c *connections) unused() []*http2.ClientConn {
	if c.retired.Err() == nil || c.users > 0 {
		return nil
	}
	unused := c.conns
	c.conns = nil
	return unused
}

func closeAll(conns []*http2.ClientConn) {
	for _, conn := range conns {
		_ = conn.Close()
	}
}

// roundTrip makes a request and reads the answer. The error is errNotConnected if
// the request was not made.
func (c *connections) roundTrip(req *http.Request) (*passed, error) {
	response, err := c.transport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	return readAnswer(response)
}

type patienceKey struct{}

// withPatience returns a context for a request which waits for a connection no
// longer than patience does.
func withPatience(ctx, patience context.Context) context.Context {
	return context.WithValue(ctx, patienceKey{}, patience)
}

// GetClientConn implements http2.ClientConnPool. The transport asks it at every
// attempt, and makes another attempt only if the one before was certainly
// without effect. So if this fails, the request has not been made.
func (c *connections) GetClientConn(req *http.Request, _ string) (*http2.ClientConn, error) {
	patience, ok := req.Context().Value(patienceKey{}).(context.Context)
	if !ok {
		patience = req.Context()
	}
	for {
		room := c.room.wait()
		conn, dial, err := c.reserve()
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errNotConnected, err)
		}
		if conn != nil {
			return conn, nil
		}
		if err := c.await(req.Context(), patience, dial, room); err != nil {
			return nil, fmt.Errorf("%w: %w", errNotConnected, err)
		}
	}
}

// await returns when a connection is made or, if dial is nil, when there may be
// room on one.
func (c *connections) await(ctx, patience context.Context, dial *dial, room <-chan struct{}) error {
	var connected <-chan struct{}
	var again <-chan time.Time
	full := dial == nil
	if full {
		// The transport gives a place back a moment after the answer was read.
		timer := time.NewTimer(minRepeat)
		defer timer.Stop()
		again = timer.C
	} else {
		connected, room = dial.done, nil
	}
	select {
	case <-connected:
	case <-room:
	case <-again:
	case <-c.retired.Done():
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-patience.Done():
		if full {
			return errFull
		}
		return context.Cause(patience)
	}
	return nil
}

// MarkDead implements http2.ClientConnPool. A connection is dead for new requests
// when it broke, or when the leader has said that it will close it; that one
// closes with the last answer on it.
func (c *connections) MarkDead(dead *http2.ClientConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conns = slices.DeleteFunc(c.conns, func(conn *http2.ClientConn) bool { return conn == dead })
}

// reserve returns a connection with room for a request, or else one that is
// being made, or neither if there are to be no more.
func (c *connections) reserve() (*http2.ClientConn, *dial, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.retired.Err() != nil {
		return nil, nil, errors.New("it leads no more")
	}
	for _, conn := range c.conns {
		if conn.ReserveNewRequest() {
			return conn, nil, nil
		}
	}
	if len(c.conns) >= c.max {
		return nil, nil, nil
	}
	if c.dial == nil || c.dial.over() {
		if c.dial != nil && c.dial.err != nil && time.Since(c.dial.ended) < connectPause {
			return nil, nil, c.dial.err
		}
		d := &dial{done: make(chan struct{})}
		c.dial = d
		c.work.Go(func() { c.connect(d) })
	}
	return nil, c.dial, nil
}

func (d *dial) over() bool {
	select {
	case <-d.done:
		return true
	default:
		return false
	}
}

// connect makes a connection, and lets those go on who wait for it.
func (c *connections) connect(d *dial) {
	conn, err := c.newConnection()
	c.mu.Lock()
	if err == nil {
		c.conns = append(c.conns, conn)
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
