package intake

import (
	"container/list"
	"sync"
	"time"
)

// arrivals are the times at which requests in flight have arrived. The zero value is ready. It is safe for
// concurrent use, and every call takes constant time.
type arrivals struct {
	mu    sync.Mutex
	times list.List // oldest first
}

// begin adds a request that arrives now. The caller calls end once.
func (a *arrivals) begin() (end func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	at := a.times.PushBack(time.Now())
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.times.Remove(at)
	}
}

// oldest returns the age of the oldest request, 0 if there is none.
func (a *arrivals) oldest() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if first := a.times.Front(); first != nil {
		return time.Since(first.Value.(time.Time))
	}
	return 0
}
