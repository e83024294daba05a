// Package shares bounds the use of a shared resource, such as memory or connections, so that
// no tenant can use all of it, and no user all that its tenant may.
package shares

import "sync"

// Shares limits the use of a capacity with dynamic thresholds (Choudhury and Hahne, 1998):
//
//   - a tenant may use at most as much as is free;
//   - each of its namespaces, beyond the first use, at most half as much as is free;
//   - each of its users, beyond the first use, at most twice as much as its tenant may still use there, all Unproven
//     ones together as one user, and all Rightless ones together at most half as much.
//
// So a single tenant uses at most a half, in one namespace a third; two tenants use a third
// each. One user of several uses at most two fifths, in one namespace a quarter; the rightless a quarter, and a seventh.
// Whatever the others use, a part remains free. Make it with New. It is safe for use
// by many goroutines.
type Shares struct {
	capacity int64

	mu      sync.Mutex
	used    int64
	tenants map[string]int64
	flows   map[Flow]int64 // of namespaces, without a user, and of users, without a namespace
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

// UsedBy returns what the user of a flow uses in all namespaces or, without a user, what its tenant uses in its
// namespace.
func (s *Shares) UsedBy(f Flow) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.User != "" {
		return s.flows[f.ofUser()]
	}
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
	if own := s.flows[f.inNamespace()]; own > 0 {
		n = min(n, free/2-own)
	}
	switch own := s.flows[f.ofUser()]; {
	case f.User == Rightless:
		n = min(n, n/2-own)
	case f.User != "" && own > 0:
		n = min(n, 2*n-own)
	}
	return max(0, n)
}

func (s *Shares) add(f Flow, n int64) {
	s.used += n
	add(s.tenants, f.Tenant, n)
	add(s.flows, f.inNamespace(), n)
	if f.User != "" {
		add(s.flows, f.ofUser(), n)
	}
}

func add[K comparable](to map[K]int64, key K, n int64) {
	if to[key] += n; to[key] == 0 {
		delete(to, key)
	}
}

func (f Flow) inNamespace() Flow { return Flow{Tenant: f.Tenant, Namespace: f.Namespace} }
func (f Flow) ofUser() Flow      { return Flow{Tenant: f.Tenant, User: f.User} }
