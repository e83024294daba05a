package intake

import (
	"context"
	"sync"

	"github.com/eventd/eventd/internal/fairqueue"
)

// seat is that of one request. The request has it while it is handled, and releases it
// while it waits for a name or for its write. It is safe for use by many goroutines: a
// handler may run on after the response.
type seat struct {
	seats *fairqueue.Seats
	flow  flow

	mu    sync.Mutex
	free  func() // nil if it is not acquired
	ended bool   // it cannot be acquired again
}

// acquire waits for the seat. It returns false when Seats.Run does, and after end.
func (s *seat) acquire(ctx context.Context) bool {
	free, ok := s.seats.Acquire(ctx, s.flow)
	return ok && s.has(free)
}

// tryAcquire is acquire without waiting.
func (s *seat) tryAcquire() bool {
	free, ok := s.seats.TryAcquire()
	return ok && s.has(free)
}

func (s *seat) has(free func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		free()
		return false
	}
	s.free = free
	return true
}

func (s *seat) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.free != nil {
		s.free()
		s.free = nil
	}
}

// end releases the seat for good.
func (s *seat) end() {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	s.release()
}

// releaseSeat releases the seat of a request that only waits and responds from now on.
func releaseSeat(ctx context.Context) {
	if s := callOf(ctx).seat; s != nil {
		s.release()
	}
}

// withoutSeat releases the seat of a request while it waits, and acquires it again. If
// ctx ends first, the request has no seat, and the caller must check ctx.
func withoutSeat(ctx context.Context, wait func()) {
	s := callOf(ctx).seat
	if s == nil {
		wait()
		return
	}
	s.release()
	wait()
	_ = s.acquire(ctx)
}
