package faultproxy

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
)

// Capacity limits concurrent Event writes. A write holds its slot until its request
// has ended, hangs and delays included. The zero Capacity is no limit.
type Capacity struct {
	// AtOnce is the number of slots; 0 is no limit.
	AtOnce int
	// Waiting is how many more writes may wait for a slot, in the order in which they
	// came. Others are refused.
	Waiting int
	// Refusal is the answer to those. The zero Answer is that of the apiserver's
	// priority and fairness: 429 with Retry-After 1, in plain text.
	Refusal Answer
}

// OverCapacity is the fault, in the Record, of a write that was refused by Capacity.
const OverCapacity = "over capacity"

// SetCapacity changes the limit. Writes that have a slot keep it, and those that wait
// continue to wait.
func (p *Proxy) SetCapacity(c Capacity) {
	if c.Refusal.code == 0 {
		c.Refusal = Status(http.StatusTooManyRequests).RetryAfter(1).PlainText()
	}
	if err := c.Refusal.check(); err != nil {
		panic("faultproxy: a capacity with " + err.Error())
	}
	p.limiter.set(c)
}

// limiter grants the slots of a Capacity.
type limiter struct {
	mu       sync.Mutex
	capacity Capacity
	taken    int
	queue    []chan struct{} // closed when a slot is granted
}

var errOverCapacity = errors.New(OverCapacity)

// acquire acquires a slot, which the caller releases; or returns errOverCapacity, or
// the error of ctx if that ends first.
func (l *limiter) acquire(ctx context.Context) error {
	l.mu.Lock()
	if l.isFree() && len(l.queue) == 0 {
		l.taken++
		l.mu.Unlock()
		return nil
	}
	if len(l.queue) >= l.capacity.Waiting {
		l.mu.Unlock()
		return errOverCapacity
	}
	turn := make(chan struct{})
	l.queue = append(l.queue, turn)
	l.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
		l.leave(turn)
		return ctx.Err()
	}
}

// leave leaves the queue, or releases the slot if that was granted first.
func (l *limiter) leave(turn chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.queue, turn); i >= 0 {
		l.queue = slices.Delete(l.queue, i, i+1)
		return
	}
	l.taken--
	l.grant()
}

func (l *limiter) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.taken--
	l.grant()
}

func (l *limiter) set(c Capacity) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.capacity = c
	l.grant()
}

func (l *limiter) refusal() Answer {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.capacity.Refusal
}

func (l *limiter) isFree() bool {
	return l.capacity.AtOnce == 0 || l.taken < l.capacity.AtOnce
}

// grant grants free slots to those that wait.
func (l *limiter) grant() {
	for len(l.queue) > 0 && l.isFree() {
		close(l.queue[0])
		l.queue = l.queue[1:]
		l.taken++
	}
}
