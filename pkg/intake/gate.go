package intake

import (
	"context"
	"errors"
	"sync"
)

// Gate lets requests in on the process that leads, and only there. It is opened
// and closed by Run, which is the whole of what a component does that accepts:
// it can be run again at every election. All methods are safe for use by many
// goroutines.
type Gate struct {
	leading func() bool
	changes news // of open, and of inside when it gets to 0

	mu     sync.Mutex
	open   bool
	inside int
}

// NewGate returns a gate that is closed. leading is asked at every request, and
// must not block: a process whose Lease could have expired lets nothing in from
// that moment, whether or not the gate has been closed. Nil is for a process
// that has nobody to share with.
func NewGate(leading func() bool) *Gate {
	if leading == nil {
		leading = func() bool { return true }
	}
	return &Gate{leading: leading}
}

// Run opens the gate until ctx is over, and returns when what was let in has
// been answered. What is let in is bounded in time by its deadline, and so is
// Run.
func (g *Gate) Run(ctx context.Context) error {
	if !g.setOpen(true) {
		return errors.New("the gate is open already")
	}
	<-ctx.Done()
	g.setOpen(false)
	g.await(func() bool { return g.inside == 0 }, nil)
	return nil
}

// Ready returns when the gate is open; an error is that of ctx.
func (g *Gate) Ready(ctx context.Context) error {
	if !g.await(func() bool { return g.open }, ctx.Done()) {
		return context.Cause(ctx)
	}
	return nil
}

// enter lets a request in, or does not. Who was let in calls leave once, when
// the request has its answer.
func (g *Gate) enter() (leave func(), ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.open || !g.leading() {
		return nil, false
	}
	g.inside++
	return g.leave, true
}

func (g *Gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inside--; g.inside == 0 {
		g.changes.tell()
	}
}

// setOpen is false if the gate is so already.
func (g *Gate) setOpen(open bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open == open {
		return false
	}
	g.open = open
	g.changes.tell()
	return true
}

// await waits until a condition holds, unless the channel is closed before.
func (g *Gate) await(holds func() bool, enough <-chan struct{}) bool {
	for {
		changed := g.changes.wait()
		g.mu.Lock()
		ok := holds()
		g.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-changed:
		case <-enough:
			return false
		}
	}
}
