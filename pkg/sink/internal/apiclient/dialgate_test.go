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

// gated is a dial gate whose transport makes connections when the test decides so, and
// which then answers when the test decides so.
type gated struct {
	*dialGate
	t *testing.T

	mu      sync.Mutex
	arrived []*attempt
}

type attempt struct {
	request          *http.Request
	connected, ended chan error
}

// atGate runs a test with a new gate in a bubble.
func atGate(t *testing.T, test func(t *testing.T, g *gated)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		g := &gated{t: t}
		g.dialGate = newDialGate(roundTripper(g.attempt))
		test(t, g)
	})
}

func (g *gated) attempt(r *http.Request) (*http.Response, error) {
	a := &attempt{r, make(chan error), make(chan error)}
	g.mu.Lock()
	g.arrived = append(g.arrived, a)
	g.mu.Unlock()
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

// next waits until nothing moves, and returns the requests that have passed the gate
// since the last call.
func (g *gated) next(want int) []*attempt {
	g.t.Helper()
	synctest.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	got := g.arrived
	g.arrived = nil
	if len(got) != want {
		g.t.Fatalf("%d requests have passed, want %d", len(got), want)
	}
	return got
}

// finish ends the requests that have passed since the last call.
func (g *gated) finish(want int, err error) {
	g.t.Helper()
	finish(g.next(want), err)
}

func finish(attempts []*attempt, err error) {
	for _, a := range attempts {
		a.connected <- nil
		a.ended <- err
	}
	synctest.Wait()
}

// send sends n requests at once, and returns what gets their errors.
func (g *gated) send(ctx context.Context, n int) <-chan error {
	errs := make(chan error, n)
	for range n {
		go func() {
			r, _ := http.NewRequestWithContext(ctx, http.MethodPost, "https://127.0.0.1", strings.NewReader("body"))
			_, err := g.RoundTrip(r)
			errs <- err
		}()
	}
	return errs
}

func TestRequestsWaitForTheFirstOnesConnection(t *testing.T) {
	atGate(t, func(t *testing.T, g *gated) {
		errs := g.send(t.Context(), 10)
		first := g.next(1)[0]
		first.connected <- nil
		g.finish(9, nil) // before the answer to the first
		first.ended <- nil
		for range 10 {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		g.send(t.Context(), 10)
		g.finish(10, nil)
		time.Sleep(connectedFor) // the connection may have been closed since
		g.send(t.Context(), 10)
		g.finish(1, nil)
		g.finish(9, errLost) // the connection is lost
		g.send(t.Context(), 10)
		g.next(1)[0].connected <- errLost
		g.finish(1, nil)
		g.finish(8, nil)
	})
}

func TestOneMoreGoesAheadWhenTheFirstGetsNoConnection(t *testing.T) {
	atGate(t, func(t *testing.T, g *gated) {
		g.send(t.Context(), 10)
		hanging := g.next(1)
		time.Sleep(dialGateTimeout)
		g.finish(1, nil)
		g.finish(8, nil)
		finish(hanging, nil)
		// Each returned its token once.
		g.send(t.Context(), 1)
		g.finish(1, errLost)
		g.send(t.Context(), 10)
		g.finish(1, nil)
		g.finish(9, nil)
	})
}

// The timeout of a request says nothing of its connection, unless it had none. A request
// that has to make another connection shows that there is none for later ones.
func TestConnectionIsForgottenForAReason(t *testing.T) {
	atGate(t, func(t *testing.T, g *gated) {
		g.send(t.Context(), 1)
		g.finish(1, nil)

		ctx, cancel := context.WithTimeout(t.Context(), dialGateTimeout/2)
		defer cancel()
		g.send(ctx, 1)
		hanging := g.next(1)[0]
		hanging.connected <- nil
		<-ctx.Done()
		hanging.ended <- ctx.Err()
		synctest.Wait()
		if !g.connected() {
			t.Error("the connection is forgotten after a request that hung")
		}

		ctx, cancel = context.WithTimeout(t.Context(), dialGateTimeout/2)
		defer cancel()
		g.send(ctx, 1)
		dialing := g.next(1)[0]
		httptrace.ContextClientTrace(dialing.request.Context()).ConnectStart("tcp", "127.0.0.1:443")
		g.send(t.Context(), 10)
		ahead := g.next(1)
		<-ctx.Done()
		dialing.connected <- ctx.Err()
		synctest.Wait()
		if g.connected() {
			t.Error("a connection that was not made counts")
		}
		finish(ahead, nil)
		g.finish(9, nil)
	})
}

func TestRequestThatWaitedInVainWasNotMade(t *testing.T) {
	atGate(t, func(t *testing.T, g *gated) {
		g.send(t.Context(), 1)
		ahead := g.next(1)
		ctx, cancel := context.WithTimeout(t.Context(), dialGateTimeout/2)
		defer cancel()
		body := &closable{Reader: strings.NewReader("body")}
		r, _ := http.NewRequestWithContext(ctx, http.MethodPost, "https://127.0.0.1", body)
		_, err := g.RoundTrip(r)
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
