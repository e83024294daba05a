package intake

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"slices"
	"sync"
	"sync/atomic"
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
	// requestsPerConnection is after how many requests a connection is replaced.
	// One has ids for 2^30, and then takes no more.
	requestsPerConnection = 1 << 29
	// uselessAfter is for how long a connection without a request in flight may take
	// none: the transport forgets a request a moment after its answer was read.
	uselessAfter = time.Second
)

// errCertificate is that somebody else serves at the leader's address.
var errCertificate = errors.New("its certificate is not the one that is announced")

// errUseless is that a connection was closed, or is about to be, before it has
// taken a request.
var errUseless = errors.New("it takes no requests on the connection")

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
	lifetime  int             // of a connection, in requests
	room      news            // of requests that have ended

	mu      sync.Mutex
	users   int // requests under way
	conns   []*connection
	dial    *dial // the last one, nil before it
	verdict verdict
	// answered is when a request was answered last, whatever the answer.
	answered time.Time
	silence  silence // since then
}

// connection is one that can still take requests, or that is to be closed with the
// last answer on it.
type connection struct {
	*http2.ClientConn
	left     int // requests that it takes yet
	inFlight int
	idle     time.Time // since when none is
	dropped  bool
}

// sending is one request on its way to a connection, and on it.
type sending struct {
	// patience is for how long it waits for a connection.
	patience context.Context
	conn     *connection // on which it has a place; guarded by the mutex of connections
	// begun tells whether any of it may have been written to the connection.
	begun atomic.Bool
}

type sendingKey struct{}

func connectionsTo(leader leaderAddress, work *sync.WaitGroup, limit int) *connections {
	c := &connections{leader: leader, work: work, max: limit, lifetime: requestsPerConnection}
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
func (c *connections) unused() []*connection {
	if c.retired.Err() == nil || c.users > 0 {
		return nil
	}
	unused := c.conns
	c.conns = nil
	return unused
}

func closeAll(conns []*connection) {
	for _, conn := range conns {
		_ = conn.Close()
	}
}

// roundTrip makes a request and reads the answer. It waits for a connection no
// longer than patience does. The error is errNotConnected if the request was not
// sent.
func (c *connections) roundTrip(req *http.Request, patience context.Context) (*passed, error) {
	a := &sending{patience: patience}
	defer c.leave(a)
	ctx := httptrace.WithClientTrace(context.WithValue(req.Context(), sendingKey{}, a), &httptrace.ClientTrace{
		// It is called before the first byte of a request is written.
		WroteHeaderField: func(string, []string) { a.begun.Store(true) },
	})
	response, err := c.transport.RoundTrip(req.WithContext(ctx))
	switch {
	case err == nil:
		return readAnswer(response)
	case errors.Is(err, errNotConnected), a.begun.Load(), ctx.Err() != nil:
		return nil, err
	default: // the connection was closed before
		return nil, fmt.Errorf("%w: %w", errNotConnected, err)
	}
}

// GetClientConn implements http2.ClientConnPool. The transport asks it at every
// attempt, and makes another attempt only if the one before was certainly
// without effect. So if this fails, the request has not been made.
func (c *connections) GetClientConn(req *http.Request, _ string) (*http2.ClientConn, error) {
	a := req.Context().Value(sendingKey{}).(*sending)
	c.leave(a)
	for {
		room := c.room.wait()
		dial, err := c.reserve(a)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errNotConnected, err)
		}
		if a.conn != nil {
			return a.conn.ClientConn, nil
		}
		if err := c.await(req.Context(), a.patience, dial, room); err != nil {
			return nil, fmt.Errorf("%w: %w", errNotConnected, err)
		}
	}
}

// leave gives back the place that an attempt has on a connection, if any.
func (c *connections) leave(a *sending) {
	c.mu.Lock()
	conn := a.conn
	a.conn = nil
	a.begun.Store(false)
	last := false
	if conn != nil {
		conn.inFlight--
		conn.idle = time.Now()
		last = conn.dropped && conn.inFlight == 0
	}
	c.mu.Unlock()
	if last {
		_ = conn.Close()
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
	c.conns = slices.DeleteFunc(c.conns, func(conn *connection) bool { return conn.ClientConn == dead })
}

// reserve gives an attempt a place on a connection. If there is none it returns
// the connection that is being made, or nil if there are to be no more.
func (c *connections) reserve(a *sending) (*dial, error) {
	c.mu.Lock()
	dial, idle, err := c.place(a)
	c.mu.Unlock()
	closeAll(idle)
	return dial, err
}

// place is reserve with the mutex held. It also returns what is to be closed.
func (c *connections) place(a *sending) (d *dial, idle []*connection, err error) {
	if c.retired.Err() != nil {
		return nil, nil, errors.New("it leads no more")
	}
	for _, conn := range slices.Clone(c.conns) {
		switch {
		case conn.left > 0 && conn.ReserveNewRequest():
			conn.left--
			conn.inFlight++
			a.conn = conn
			return nil, idle, nil
		case conn.left > 0 && (conn.inFlight > 0 || time.Since(conn.idle) < uselessAfter):
			// It is full, or was a moment ago.
		default:
			c.drop(conn)
			if conn.inFlight == 0 {
				idle = append(idle, conn)
			}
		}
	}
	if len(c.conns) >= c.max {
		return nil, idle, nil
	}
	d, err = c.dialed()
	return d, idle, err
}

// drop takes away a connection that takes no more requests: it has taken all that
// it may, or it takes none though none is in flight. One that has never taken any
// counts as an attempt to connect that failed.
func (c *connections) drop(conn *connection) {
	conn.dropped = true
	c.conns = slices.DeleteFunc(c.conns, func(other *connection) bool { return other == conn })
	if conn.left == c.lifetime {
		c.dial.err, c.dial.ended = errUseless, time.Now()
	}
}
