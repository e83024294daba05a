// Package shares bounds what tenants use together, so that one that uses much leaves
// room for others.
package shares

import "sync"

// Shares bounds what all flows have in use together, and keeps a part of it free
// for flows that use little. A tenant may have at most as much as it leaves free,
// and each of its namespaces, beyond its first use, half as much as is free. So one
// tenant alone has at most a half, in one namespace a third, two at most a third each,
// and however many want more than there is, another one finds something free (the
// dynamic thresholds of Choudhury and Hahne, 1998). Make it with New. It is safe for
// use by many goroutines.
type Shares struct {
	capacity int64

	mu      sync.Mutex
	used    int64
	tenants map[string]int64
	flows   map[Flow]int64
}

// New returns the shares of a capacity, in whatever unit its uses are counted.
func New(capacity int64) *Shares {
	return &Shares{capacity: capacity, tenants: make(map[string]int64), flows: make(map[Flow]int64)}
}

// Capacity is what all flows may have in use together.
func (s *Shares) Capacity() int64 { return s.capacity }

// Acquire takes n for a flow, to be given back by Release, or takes nothing.
func (s *Shares) Acquire(f Flow, n int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n > s.room(f) {
		return false
	}
	s.add(f, n)
	return true
}

// AcquireUpTo takes n for a flow, or as much of it as there is room for, and returns
// how much that is: to be given back by Release.
func (s *Shares) AcquireUpTo(f Flow, n int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	n = min(n, s.room(f))
	s.add(f, n)
	return n
}

// Release gives back what a flow has acquired, at once or in parts.
func (s *Shares) Release(f Flow, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(f, -n)
}

// Room is how much more a flow may acquire now, at least 0.
func (s *Shares) Room(f Flow) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.room(f)
}

// UsedBy is what a flow has.
func (s *Shares) UsedBy(f Flow) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.flows[f]
}

// InUse is what all flows have together.
func (s *Shares) InUse() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used
}

func (s *Shares) room(f Flow) int64 {
	free := s.capacity - s.used
	room := free - s.tenants[f.Tenant]
	if own := s.flows[f]; own > 0 {
		room = min(room, free/2-own)
	}
	return max(0, room)
}

func (s *Shares) add(f Flow, n int64) {
	s.used += n
	if s.tenants[f.Tenant] += n; s.tenants[f.Tenant] == 0 {
		delete(s.tenants, f.Tenant)
	}
	if s.flows[f] += n; s.flows[f] == 0 {
		delete(s.flows, f)
	}
}
