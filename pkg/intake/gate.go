package intake

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

// Gate lets requests in on the process that leads, and only there. It is opened
// and closed by Run, which is the whole of what a component does that accepts:
// it can be run again at every election. All methods are safe for use by many
// goroutines.
type Gate struct {
	leading  func() bool
	patience time.Duration
	changes  news // of term

	mu    sync.Mutex
	term  *term // nil while the gate is closed
	terms int64 // that have begun
}

// term is what is let in from an opening of the gate to its closing.
type term struct {
	number int64 // from 1
	inside int   // guarded by the gate's mutex
	over   bool
	done   chan struct{} // closed when it is over and all has been answered
}

// NewGate returns a gate that is closed. leading is asked at every request, and
// must not block: a process whose Lease could have expired lets nothing in from
// that moment, whether or not the gate has been closed. Patience is how long a
// closed gate waits for what it has let in.
func NewGate(leading func() bool, patience time.Duration) *Gate {
	return &Gate{leading: leading, patience: patience}
}

// Run opens the gate until ctx is over, and returns when what was let in
// meanwhile has been answered, or after the gate's patience. What is left then
// is answered all the same, and by then other terms may have begun.
func (g *Gate) Run(ctx context.Context) error {
	t := &term{done: make(chan struct{})}
	if !g.begin(t) {
		return errors.New("the gate is open already")
	}
	<-ctx.Done()
	g.end(t)
	timer := time.NewTimer(g.patience)
	defer timer.Stop()
	select {
	case <-t.done:
	case <-timer.C:
		klog.FromContext(ctx).Info("Handing over while requests are still in flight")
	}
	return nil
}

// Ready returns when the gate is open; an error is that of ctx.
func (g *Gate) Ready(ctx context.Context) error {
	for {
		changed := g.changes.wait()
		if g.open() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (g *Gate) open() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.term != nil
}

// accepts tells whether a request would be let in now.
func (g *Gate) accepts() bool { return g.open() && g.leading() }

// enter lets a request in, or does not. Who was let in, in the term of that
// number, calls leave once, when the request has its answer.
func (g *Gate) enter() (term int64, leave func(), ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	t := g.term
	if t == nil || !g.leading() {
		return 0, nil, false
	}
	t.inside++
	return t.number, func() { g.leave(t) }, true
}

func (g *Gate) leave(t *term) {
	g.mu.Lock()
	defer g.mu.Unlock()
	t.inside--
	t.settle()
}

// begin is false if the gate is open already.
func (g *Gate) begin(t *term) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.term != nil {
		return false
	}
	g.terms++
	g.term, t.number = t, g.terms
	g.changes.tell()
	return true
}

func (g *Gate) end(t *term) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.term, t.over = nil, true
	t.settle()
	g.changes.tell()
}

func (t *term) settle() {
	if t.over && t.inside == 0 {
		close(t.done)
	}
}
