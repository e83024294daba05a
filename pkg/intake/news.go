package intake

import "sync"

// news tells everybody who waits that something has changed. The zero value is
// ready.
type news struct {
	mu   sync.Mutex
	next chan struct{} // nil if nobody waits
}

// wait returns a channel that is closed at the next change. Who looks at a state
// after that misses none.
func (n *news) wait() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.next == nil {
		n.next = make(chan struct{})
	}
	return n.next
}

func (n *news) tell() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.next != nil {
		close(n.next)
		n.next = nil
	}
}
