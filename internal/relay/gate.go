package relay

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/eventd/eventd/internal/grace"
	"github.com/eventd/eventd/internal/notify"
	"github.com/eventd/eventd/pkg/intake"
)

// Gate is the leader gate: it admits requests to be recorded by this process, while it
// leads. Run opens it for one term, and can be called again at every election. All
// methods are safe for use by many goroutines.
type Gate struct {
	leading     func() bool
	gracePeriod time.Duration
	changes     notify.Notifier // of term

	mu    sync.Mutex
	term  *term // nil while the gate is closed
	terms int64 // that have begun
}

// term counts the requests that were admitted from one opening of the gate to its
// closing.
type term struct {
	number   int64 // from 1
	inFlight int   // guarded by the gate's mutex
	ended    bool
	done     chan struct{} // closed when it has ended and all requests are answered
}

// NewGate returns a closed gate. leading is called at every request, and must not
// block: if the Lease could have expired, the gate admits nothing, even while it is
// open. The grace period is how long Run waits at its end for admitted requests.
func NewGate(leading func() bool, gracePeriod time.Duration) *Gate {
	return &Gate{leading: leading, gracePeriod: gracePeriod}
}

// Run opens the gate until ctx is done, and returns when all requests that it admitted
// are answered, or after the grace period. Requests that are left then are answered
// too, maybe during later terms.
func (g *Gate) Run(ctx context.Context) error {
	t := &term{done: make(chan struct{})}
	if !g.begin(t) {
		return errors.New("the gate is open already")
	}
	<-ctx.Done()
	g.end(t)
	if !grace.WaitFor(g.gracePeriod, t.done) {
		klog.FromContext(ctx).Info("Handing over while requests are still in flight")
	}
	return nil
}

// Ready returns when the gate is open; an error is that of ctx.
func (g *Gate) Ready(ctx context.Context) error { return g.changes.Await(ctx, g.open) }

func (g *Gate) open() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.term != nil
}

// admits reports whether a request would be admitted now.
func (g *Gate) admits() bool { return g.open() && g.leading() }

// admit admits a request to the current term, or does not. The caller of an admitted
// request calls done once, when it is answered.
func (g *Gate) admit() (admitted intake.Term, done func(), ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	t := g.term
	if t == nil || !g.leading() {
		return intake.Term{}, nil, false
	}
	t.inFlight++
	return intake.Term{Number: t.number, Leading: g.leading}, func() { g.done(t) }, true
}

func (g *Gate) done(t *term) {
	g.mu.Lock()
	defer g.mu.Unlock()
	t.inFlight--
	t.closeIfDone()
}

// begin returns false if the gate is open already.
func (g *Gate) begin(t *term) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.term != nil {
		return false
	}
	g.terms++
	g.term, t.number = t, g.terms
	g.changes.Notify()
	return true
}

func (g *Gate) end(t *term) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.term, t.ended = nil, true
	t.closeIfDone()
	g.changes.Notify()
}

func (t *term) closeIfDone() {
	if t.ended && t.inFlight == 0 {
		close(t.done)
	}
}
