package relay

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"

	"github.com/eventd/eventd/internal/notify"
	"github.com/eventd/eventd/internal/sleep"
	"github.com/eventd/eventd/pkg/election"
)

const (
	// streams is how many requests eventd accepts at once on a connection by default, as
	// a kube-apiserver, and what net/http assumes until it knows better. There are
	// connections for all requests that may be in flight. If a leader accepts fewer,
	// requests wait.
	streams = 100
	// A silent connection is closed, with its requests, after the sum of these.
	pingAfter   = 2 * time.Second
	pingTimeout = 3 * time.Second
	// minConnect is how long a request waits for a connection at least, so that it uses an
	// open one even when its time to wait is over.
	minConnect = 50 * time.Millisecond
	// receiveBuffer is what the leader may send of an answer before it is read: a client may read nothing
	// of a watch. The default of net/http is 4 MiB.
	receiveBuffer = 64 << 10
	// requestsPerTransport is after how many requests all connections are replaced. Each
	// has ids for 2^30.
	requestsPerTransport = 1 << 29
)

// errFull is that the leader accepts no more requests at once.
var errFull = errors.New("all connections to it are in use")

// connections are those to one leader: an address with a certificate. Another certificate
// is another leader, so connections of the former are never used for it.
//
// net/http pools them, sends pings, and repeats a request that had no effect. What it
// does not do is here: the wait for a connection ends with the patience of each request
// (roundTrip), the number of connections is limited, and only the leader's certificate is
// accepted (dial.go).
type connections struct {
	server    election.Announcement
	transport *http.Transport
	limit     int // of open connections
	health    *health
	slotFreed chan struct{} // has a value when a request or connection has ended

	retired  context.Context // no more connections are made
	closed   context.Context // all connections are closed
	stopDial context.CancelFunc
	closeAll context.CancelFunc

	mu        sync.Mutex
	inFlight  int
	lifetime  int   // requests that are accepted yet
	open      int   // connections
	dialErr   error // of the last dial
	dialEnded time.Time
	// refusal is why the last dial made no connection, or was not begun; nil if it made one.
	refusal error
	refused time.Time
}

func newConnections(server election.Announcement, limit int, h *health) *connections {
	c := &connections{server: server, limit: limit, health: h, slotFreed: make(chan struct{}, 1), lifetime: requestsPerTransport}
	c.retired, c.stopDial = context.WithCancel(context.Background())
	c.closed, c.closeAll = context.WithCancel(context.Background())
	c.transport = &http.Transport{
		DialTLSContext: c.dial,
		Protocols:      new(http.Protocols),
		// One dial at a time, for all requests that wait. A connection that is full does
		// not count.
		MaxConnsPerHost:    1,
		DisableCompression: true, // the leader's answer is not changed
		HTTP2:              &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout, MaxReceiveBufferPerStream: receiveBuffer},
	}
	c.transport.Protocols.SetHTTP2(true)
	return c
}

// acquire counts a request, for which release must be called when its answer was read. It
// returns false if the connections must be replaced.
func (c *connections) acquire() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lifetime == 0 {
		return false
	}
	c.lifetime--
	c.inFlight++
	return true
}

func (c *connections) release() {
	c.mu.Lock()
	c.inFlight--
	c.closeUnused()
	c.mu.Unlock()
	notify.Wake(c.slotFreed)
}

// retire ends all dials, and closes the connections when the requests in flight have
// their answers.
func (c *connections) retire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopDial()
	c.closeUnused()
}

func (c *connections) closeUnused() {
	if c.retired.Err() != nil && c.inFlight == 0 {
		c.closeAll()
	}
}

// roundTrip sends a request and reads the answer. It waits until giveUp for a connection.
// The error is errNotConnected if the request certainly was not sent.
func (c *connections) roundTrip(req *http.Request, giveUp time.Time) (*answer, error) {
	for {
		a, err := c.try(req, giveUp)
		if !errors.Is(err, errFull) || !c.awaitSlot(req.Context(), giveUp) {
			return a, err
		}
		if req.GetBody != nil {
			req.Body, _ = req.GetBody() // from memory
		}
	}
}

// awaitSlot returns true when there may be a slot on a connection.
func (c *connections) awaitSlot(ctx context.Context, giveUp time.Time) bool {
	ctx, cancel := context.WithDeadline(ctx, giveUp)
	defer cancel()
	// The transport frees a stream a moment after its answer was read. Others wait too.
	return sleep.Until(ctx, minRepeat, c.slotFreed) == nil
}

func (c *connections) try(req *http.Request, giveUp time.Time) (*answer, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	defer cancel(nil)
	a := &attempt{cancel: cancel}
	a.timer = time.AfterFunc(max(time.Until(giveUp), minConnect), a.giveUp)
	defer a.timer.Stop()
	response, err := c.transport.RoundTrip(req.WithContext(httptrace.WithClientTrace(ctx, a.trace())))
	switch {
	case err == nil:
		return readAnswer(response)
	case a.written.Load(), req.Context().Err() != nil: // then it may be written even now
		return nil, err
	case errors.Is(err, errNoConnection):
		err = c.lastRefusal(err)
	}
	return nil, fmt.Errorf("%w: %w", errNotConnected, err)
}

// lastRefusal returns why there is no connection: what was found a moment ago, though the last
// attempt was given up before it could find the same.
func (c *connections) lastRefusal(givenUp error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refusal == nil || time.Since(c.refused) > connectTimeout {
		return givenUp
	}
	return c.refusal
}

// attempt is one call of RoundTrip, which may send a request several times: again only if
// the last time certainly had no effect.
type attempt struct {
	cancel context.CancelCauseFunc
	timer  *time.Timer
	// written reports whether a part of the request may have been written to the
	// connection.
	written atomic.Bool

	mu        sync.Mutex
	connected bool
	expired   bool // the timer
}

var errNoConnection = errors.New("no connection was made in time")

// giveUp cancels an attempt that waits for a connection. Nothing of a request is written
// that was cancelled before GotConn returns.
func (a *attempt) giveUp() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.expired = true
	if !a.connected {
		a.cancel(errNoConnection)
	}
}

func (a *attempt) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		// For each time that it is sent.
		GetConn: func(string) {
			a.written.Store(false)
			a.mu.Lock()
			defer a.mu.Unlock()
			a.connected = false
			if a.expired {
				a.timer.Reset(minConnect)
			}
		},
		GotConn: func(httptrace.GotConnInfo) {
			a.written.Store(false)
			a.mu.Lock()
			defer a.mu.Unlock()
			a.connected = true
		},
		// Before the first byte is written.
		WroteHeaderField: func(string, []string) { a.written.Store(true) },
	}
}
