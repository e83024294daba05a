package relay

import (
	"context"
	"sync"
)

// notifier wakes all that wait for a change of some state. The zero value is ready.
type notifier struct {
	mu   sync.Mutex
	next chan struct{} // nil if nobody waits
}

// changed returns a channel that is closed at the next change. A caller that gets it
// before it reads the state misses none.
func (n *notifier) changed() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.next == nil {
		n.next = make(chan struct{})
	}
	return n.next
}

func (n *notifier) notify() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.next != nil {
		close(n.next)
		n.next = nil
	}
}

// await returns when the state is as wanted; an error is that of ctx.
func (n *notifier) await(ctx context.Context, wanted func() bool) error {
	for {
		changed := n.changed()
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
