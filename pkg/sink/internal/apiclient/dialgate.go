package apiclient

import (
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// dialGateTimeout is several times what a connection takes to be made.
	dialGateTimeout = 200 * time.Millisecond
	// connectedFor is how long a connection is there for sure after it was used:
	// less than the 90 seconds after which client-go closes it.
	connectedFor = time.Minute
	// probeInterval is the time between probes while another connection works.
	probeInterval = 5 * time.Second
)

// dialGate lets one request dial while there may be no connection. The others wait
// until it has one, which over HTTP/2 they share. net/http would dial for each of them
// and then close all connections but one or two: as many handshakes as requests, before
// the first write and after each broken connection, at an apiserver that may just be
// restarting.
//
// The dialing request may not succeed, for example behind a load balancer that still
// routes to a stopped apiserver. So one more may dial after each dialGateTimeout.
type dialGate struct {
	rt http.RoundTripper
	// until is the time, counted from began, until which a connection is assumed.
	until   atomic.Int64
	began   time.Time
	dialing chan struct{} // holds a token while one request dials
	// nextProbe is the time, counted from began, of the next probe without a connection.
	nextProbe atomic.Int64
}

func newDialGate(rt http.RoundTripper) *dialGate {
	return &dialGate{rt: rt, began: time.Now(), dialing: make(chan struct{}, 1)}
}

func (g *dialGate) connected() bool { return time.Since(g.began) < time.Duration(g.until.Load()) }

func (g *dialGate) hasConnection() { g.until.Store(int64(time.Since(g.began) + connectedFor)) }

// mayProbe reports whether a request may probe for a connection now, once in each
// probeInterval. Requests that can use another connection stay away meanwhile.
func (g *dialGate) mayProbe() bool {
	now, next := time.Since(g.began), g.nextProbe.Load()
	return now >= time.Duration(next) && g.nextProbe.CompareAndSwap(next, int64(now+probeInterval))
}

// WrappedRoundTripper is how client-go looks for its transport.
func (g *dialGate) WrappedRoundTripper() http.RoundTripper { return g.rt }

func (g *dialGate) RoundTrip(r *http.Request) (*http.Response, error) {
	if g.connected() {
		return g.pass(r, func() {})
	}
	select {
	case g.dialing <- struct{}{}:
	case <-r.Context().Done():
		return notConnected(r)
	}
	end := sync.OnceFunc(func() { <-g.dialing })
	defer end()
	if g.connected() {
		end()
		return g.pass(r, func() {})
	}
	defer time.AfterFunc(dialGateTimeout, end).Stop()
	return g.pass(r, end)
}

// pass sends a request, and calls connected when the request has a connection. The
// connection is no longer assumed after a new dial, and after an error other than the
// timeout of the request itself. If it still works, the next request finds it at once.
func (g *dialGate) pass(r *http.Request, connected func()) (*http.Response, error) {
	var had atomic.Bool
	trace := &httptrace.ClientTrace{
		ConnectStart: func(string, string) { g.until.Store(0) },
		GotConn: func(httptrace.GotConnInfo) {
			had.Store(true)
			g.hasConnection()
			connected()
		},
	}
	response, err := g.rt.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
	switch {
	case err == nil:
		g.hasConnection()
	case !had.Load() || r.Context().Err() == nil:
		g.until.Store(0)
	}
	return response, err
}

// notConnected fails a request that was not sent, with a dial error, so the write
// certainly did not happen.
func notConnected(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		r.Body.Close()
	}
	return nil, &net.OpError{Op: "dial", Net: "tcp", Err: r.Context().Err()}
}
