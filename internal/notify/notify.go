// Package notify wakes goroutines that wait for a change.
package notify

import (
	"context"
	"sync"
)

// Notifier wakes all that wait for a change of some state. The zero value is ready. It is safe for concurrent use.
type Notifier struct {
	mu   sync.Mutex
	next chan struct{} // nil if nobody waits
}

// Changed returns a channel that is closed at the next change. A caller that gets it
// before it reads the state misses none.
func (n *Notifier) Changed() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.next == nil {
		n.next = make(chan struct{})
	}
	return n.next
}

// Notify wakes all that wait.
func (n *Notifier) Notify() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.next != nil {
		close(n.next)
		n.next = nil
	}
}

// Await returns when the state is as wanted; an error is that of ctx.
func (n *Notifier) Await(ctx context.Context, wanted func() bool) error {
	for {
		changed := n.Changed()
		if wanted() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Wake wakes the receiver of a channel with a buffer of one, and does not block. Wakes that were not received are merged.
func Wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
