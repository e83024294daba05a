package sink

import (
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// headStartTime is several times what a connection takes to be made.
	headStartTime = 200 * time.Millisecond
	// connectedFor is how long a connection is there for sure after it was used:
	// less than the 90 seconds after which client-go closes it.
	connectedFor = time.Minute
	// inviteAfter is how long one that has no connection is left alone, if there is
	// another one to ask.
	inviteAfter = 5 * time.Second
)

// headStart lets one request go ahead when there may be no connection, and the
// others wait until it has one, which with HTTP/2 is theirs too. net/http would
// make a connection for each of them, of which all but one or two are then
// closed: 128 handshakes, before the first write and after each connection that
// died, at an apiserver that may just be coming back.
//
// The one ahead can be unlucky, with a load balancer that does not know yet that
// an apiserver has gone. So there is one more after each headStartTime.
type headStart struct {
	rt http.RoundTripper
	// until is when to doubt that there is a connection, counted from began.
	until atomic.Int64
	began time.Time
	turn  chan struct{} // holds something while one goes ahead
	// invitation is when somebody may be sent here though there may be no connection.
	invitation atomic.Int64
}

func newHeadStart(rt http.RoundTripper) *headStart {
	return &headStart{rt: rt, began: time.Now(), turn: make(chan struct{}, 1)}
}

func (h *headStart) connected() bool { return time.Since(h.began) < time.Duration(h.until.Load()) }

func (h *headStart) hasConnection() { h.until.Store(int64(time.Since(h.began) + connectedFor)) }

// invites tells whether it is time that a request finds out whether there can be a
// connection: no others that have the choice should come here while there is none.
func (h *headStart) invites() bool {
	now, next := time.Since(h.began), h.invitation.Load()
	return now >= time.Duration(next) && h.invitation.CompareAndSwap(next, int64(now+inviteAfter))
}

// WrappedRoundTripper is how client-go looks for its transport.
func (h *headStart) WrappedRoundTripper() http.RoundTripper { return h.rt }

func (h *headStart) RoundTrip(r *http.Request) (*http.Response, error) {
	if h.connected() {
		return h.pass(r, func() {})
	}
	select {
	case h.turn <- struct{}{}:
	case <-r.Context().Done():
		return notConnected(r)
	}
	end := sync.OnceFunc(func() { <-h.turn })
	defer end()
	if h.connected() {
		end()
		return h.pass(r, func() {})
	}
	defer time.AfterFunc(headStartTime, end).Stop()
	return h.pass(r, end)
}

// pass lets a request go, and calls what it is given when that has a connection. It
// forgets the connection when another one has to be made, and when there was an
// error that is not just the end of the request's own time. If it is still good,
// the next request has it at once, and nobody waits.
func (h *headStart) pass(r *http.Request, connected func()) (*http.Response, error) {
	var had atomic.Bool
	trace := &httptrace.ClientTrace{
		ConnectStart: func(string, string) { h.until.Store(0) },
		GotConn: func(httptrace.GotConnInfo) {
			had.Store(true)
			h.hasConnection()
			connected()
		},
	}
	response, err := h.rt.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
	switch {
	case err == nil:
		h.hasConnection()
	case !had.Load() || r.Context().Err() == nil:
		h.until.Store(0)
	}
	return response, err
}

// notConnected ends a request that has not left this process, with the error of a
// dial: the write did not happen, for sure.
func notConnected(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		r.Body.Close()
	}
	return nil, &net.OpError{Op: "dial", Net: "tcp", Err: r.Context().Err()}
}
