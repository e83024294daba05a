package apiclient

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// connecting is a transport whose connections are made when the test says so,
// and which then answers when the test says so.
type connecting struct {
	mu      sync.Mutex
	waiting []*attempt
}

type attempt struct {
	request          *http.Request
	connected, ended chan error
}

func (c *connecting) RoundTrip(r *http.Request) (*http.Response, error) {
	a := &attempt{r, make(chan error), make(chan error)}
	c.mu.Lock()
	c.waiting = append(c.waiting, a)
	c.mu.Unlock()
	if err := <-a.connected; err != nil {
		return nil, err
	}
	if trace := httptrace.ContextClientTrace(r.Context()); trace != nil {
		trace.GotConn(httptrace.GotConnInfo{})
	}
	if err := <-a.ended; err != nil {
		return nil, err
	}
	return &http.Response{Body: http.NoBody}, nil
}

// arrived waits until nothing moves, and returns the requests that have arrived
// since the last call.
func (c *connecting) arrived(t *testing.T, want int) []*attempt {
	t.Helper()
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	got := c.waiting
	c.waiting = nil
	if len(got) != want {
		t.Fatalf("%d requests have gone on, want %d", len(got), want)
	}
	return got
}

// sendAll sends n requests at once, and returns what gets their errors.
func sendAll(ctx context.Context, h *dialGate, n int) <-chan error {
	errs := make(chan error, n)
	for range n {
		go func() {
			r, _ := http.NewRequestWithContext(ctx, http.MethodPost, "https://127.0.0.1", strings.NewReader("body"))
			_, err := h.RoundTrip(r)
			errs <- err
		}()
	}
	return errs
}

func finish(attempts []*attempt, err error) {
	for _, a := range attempts {
		a.connected <- nil
		a.ended <- err
	}
}

func TestRequestsWaitForTheFirstOnesConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &connecting{}
		h := newDialGate(c)
		errs := sendAll(t.Context(), h, 10)
		first := c.arrived(t, 1)[0]
		first.connected <- nil
		// Not for its answer.
		finish(c.arrived(t, 9), nil)
		first.ended <- nil
		for range 10 {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		sendAll(t.Context(), h, 10)
		finish(c.arrived(t, 10), nil)
		synctest.Wait()
		// The connection may have been closed since.
		time.Sleep(connectedFor)
		sendAll(t.Context(), h, 10)
		finish(c.arrived(t, 1), nil)
		finish(c.arrived(t, 9), errLost)
		synctest.Wait()
		// The connection is lost.
		sendAll(t.Context(), h, 10)
		first = c.arrived(t, 1)[0]
		first.connected <- errLost
		finish(c.arrived(t, 1), nil)
		finish(c.arrived(t, 8), nil)
	})
}

func TestOneMoreGoesAheadWhenTheFirstGetsNoConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &connecting{}
		h := newDialGate(c)
		sendAll(t.Context(), h, 10)
		unlucky := c.arrived(t, 1)
		time.Sleep(dialGateTimeout)
		finish(c.arrived(t, 1), nil)
		finish(c.arrived(t, 8), nil)
		finish(unlucky, nil)
		// Only one turn was given back for each.
		sendAll(t.Context(), h, 1)
		finish(c.arrived(t, 1), errLost)
		synctest.Wait()
		sendAll(t.Context(), h, 10)
		finish(c.arrived(t, 1), nil)
		finish(c.arrived(t, 9), nil)
	})
}

// A request's own time says nothing of its connection, unless it had none. One that
// has to make another connection shows that there is none for those to come.
func TestConnectionIsForgottenForAReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &connecting{}
		h := newDialGate(c)
		sendAll(t.Context(), h, 1)
		finish(c.arrived(t, 1), nil)
		synctest.Wait()

		ctx, cancel := context.WithTimeout(t.Context(), dialGateTimeout/2)
		defer cancel()
		sendAll(ctx, h, 1)
		hanging := c.arrived(t, 1)[0]
		hanging.connected <- nil
		<-ctx.Done()
		hanging.ended <- ctx.Err()
		synctest.Wait()
		if !h.connected() {
			t.Error("a request that hung costs the connection")
		}

		ctx, cancel = context.WithTimeout(t.Context(), dialGateTimeout/2)
		defer cancel()
		sendAll(ctx, h, 1)
		dialing := c.arrived(t, 1)[0]
		httptrace.ContextClientTrace(dialing.request.Context()).ConnectStart("tcp", "127.0.0.1:443")
		sendAll(t.Context(), h, 10)
		ahead := c.arrived(t, 1)
		<-ctx.Done()
		dialing.connected <- ctx.Err()
		synctest.Wait()
		if h.connected() {
			t.Error("a connection that was not made counts")
		}
		finish(ahead, nil)
		finish(c.arrived(t, 9), nil)
	})
}

func TestRequestThatWaitedInVainWasNotMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &connecting{}
		h := newDialGate(c)
		sendAll(t.Context(), h, 1)
		ahead := c.arrived(t, 1)
		ctx, cancel := context.WithTimeout(t.Context(), dialGateTimeout/2)
		defer cancel()
		body := &closable{Reader: strings.NewReader("body")}
		r, _ := http.NewRequestWithContext(ctx, http.MethodPost, "https://127.0.0.1", body)
		_, err := h.RoundTrip(r)
		if got := classifyTransport(err); got != ClassUnreachable || !errors.Is(err, context.DeadlineExceeded) || !body.closed {
			t.Errorf("%v is %s, body closed: %v", err, got, body.closed)
		}
		finish(ahead, nil)
	})
}

type closable struct {
	io.Reader
	closed bool
}

func (c *closable) Close() error {
	c.closed = true
	return nil
}
