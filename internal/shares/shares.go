// Package shares bounds the use of a shared resource, such as memory or connections, so that
// no tenant can use all of it.
package shares

import "sync"

// Shares limits the use of a capacity with dynamic thresholds (Choudhury and Hahne, 1998):
//
//   - a tenant may use at most as much as is free;
//   - each of its namespaces, beyond the first use, at most half as much as is free.
//
// So a single tenant uses at most a half, in one namespace a third; two tenants use a third
// each. Whatever the others use, a part remains free. Make it with New. It is safe for use
// by many goroutines.
type Shares struct {
	capacity int64

	mu      sync.Mutex
	used    int64
	tenants map[string]int64
	flows   map[Flow]int64
}

// New returns the shares of a capacity, in any unit.
func New(capacity int64) *Shares {
	return &Shares{capacity: capacity, tenants: make(map[string]int64), flows: make(map[Flow]int64)}
}

// Capacity returns the capacity.
func (s *Shares) Capacity() int64 { return s.capacity }

// Acquire acquires n for a flow, or nothing. The caller must release it.
func (s *Shares) Acquire(f Flow, n int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n > s.available(f) {
		return false
	}
	s.add(f, n)
	return true
}

// AcquireUpTo acquires n for a flow, or as much as is available. It returns the amount, which
// the caller must release.
func (s *Shares) AcquireUpTo(f Flow, n int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	n = min(n, s.available(f))
	s.add(f, n)
	return n
}

// Release releases n of what a flow has acquired.
func (s *Shares) Release(f Flow, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(f, -n)
}

// Available returns how much more a flow may acquire now, at least 0.
func (s *Shares) Available(f Flow) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.available(f)
}

// UsedBy returns what a flow uses.
func (s *Shares) UsedBy(f Flow) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.flows[f]
}

// InUse returns what all flows use.
func (s *Shares) InUse() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used
}

func (s *Shares) available(f Flow) int64 {
	free := s.capacity - s.used
	n := free - s.tenants[f.Tenant]
	if own := s.flows[f]; own > 0 {
		n = min(n, free/2-own)
	}
	return max(0, n)
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
