package faultproxy

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
)

// Capacity is the room for Event writes. A write holds its place until its client
// has its ending, hangs and delays included. The zero Capacity is room for all.
type Capacity struct {
	// AtOnce is how many writes may be under way; 0 is any number.
	AtOnce int
	// Waiting is how many more may wait for a place, in the order in which they
	// came. What comes above that is refused.
	Waiting int
	// Refusal is the answer to those. The zero Answer is that of the apiserver's
	// priority and fairness: 429 with Retry-After 1, in plain text.
	Refusal Answer
}

// OverCapacity is what the Record calls the fault of a write that found no room.
const OverCapacity = "over capacity"

// SetCapacity changes the room from now on. Those that have a place keep it, and
// those that wait go on waiting.
func (p *Proxy) SetCapacity(c Capacity) {
	if c.Refusal.code == 0 {
		c.Refusal = Status(http.StatusTooManyRequests).RetryAfter(1).PlainText()
	}
	if err := c.Refusal.check(); err != nil {
		panic("faultproxy: a capacity with " + err.Error())
	}
	p.places.set(c)
}

// places hands out the places of a Capacity.
type places struct {
	mu       sync.Mutex
	capacity Capacity
	taken    int
	queue    []chan struct{} // closed when a place is handed over
}

var errNoPlace = errors.New("no place")

// take takes a place, which the caller owes back with free; or returns errNoPlace,
// or ctx's error if it ended first.
func (p *places) take(ctx context.Context) error {
	p.mu.Lock()
	if p.isFree() && len(p.queue) == 0 {
		p.taken++
		p.mu.Unlock()
		return nil
	}
	if len(p.queue) >= p.capacity.Waiting {
		p.mu.Unlock()
		return errNoPlace
	}
	turn := make(chan struct{})
	p.queue = append(p.queue, turn)
	p.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
		p.leave(turn)
		return ctx.Err()
	}
}

// leave gives up a turn, or the place, if that came first.
func (p *places) leave(turn chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.queue, turn); i >= 0 {
		p.queue = slices.Delete(p.queue, i, i+1)
		return
	}
	p.taken--
	p.hand()
}

func (p *places) free() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken--
	p.hand()
}

func (p *places) set(c Capacity) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.capacity = c
	p.hand()
}

func (p *places) refusal() Answer {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.capacity.Refusal
}

func (p *places) isFree() bool {
	return p.capacity.AtOnce == 0 || p.taken < p.capacity.AtOnce
}

// hand hands free places to those that wait.
func (p *places) hand() {
	for len(p.queue) > 0 && p.isFree() {
		close(p.queue[0])
		p.queue = p.queue[1:]
		p.taken++
	}
}
