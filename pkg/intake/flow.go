package intake

import (
	"net"
	"net/http"
	"net/netip"
	"sync"
)

// flow is whose requests share a limit: those of one tenant in one namespace.
// What is not known to be of a tenant is of the address that it came from.
type flow struct{ tenant, namespace string }

// flowOfAddress is the flow of a request whose caller is not known. A host is
// usually given a whole /64 of IPv6 addresses, so that is one flow.
func flowOfAddress(req *http.Request) flow {
	host, _, err := net.SplitHostPort(req.RemoteAddr)
	if err != nil {
		host = req.RemoteAddr
	}
	address, err := netip.ParseAddr(host)
	if err != nil {
		return flow{tenant: "\x00address:" + host}
	}
	address = address.Unmap().WithZone("")
	if address.Is6() {
		prefix, _ := address.Prefix(64)
		return flow{tenant: "\x00address:" + prefix.String()}
	}
	return flow{tenant: "\x00address:" + address.String()}
}

// shares bounds what all flows have in use together, and keeps a part of it free
// for flows that use little. A tenant may have at most as much as it leaves free,
// and each of its namespaces half as much as is free. So one tenant alone has at
// most a half, two at most a third each, and however many want more than there
// is, another one finds something free (the dynamic thresholds of Choudhury and
// Hahne, 1998). It is safe for use by many goroutines.
type shares struct {
	capacity int64

	mu      sync.Mutex
	used    int64
	tenants map[string]int64
	flows   map[flow]int64
}

func newShares(capacity int64) *shares {
	return &shares{capacity: capacity, tenants: make(map[string]int64), flows: make(map[flow]int64)}
}

// acquire takes n for a flow, to be given back once, or takes nothing.
func (s *shares) acquire(f flow, n int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	free := s.capacity - s.used
	if s.tenants[f.tenant]+n > free {
		return false
	}
	if mine := s.flows[f]; mine > 0 && 2*(mine+n) > free {
		return false
	}
	s.add(f, n)
	return true
}

func (s *shares) release(f flow, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(f, -n)
}

func (s *shares) add(f flow, n int64) {
	s.used += n
	if s.tenants[f.tenant] += n; s.tenants[f.tenant] == 0 {
		delete(s.tenants, f.tenant)
	}
	if s.flows[f] += n; s.flows[f] == 0 {
		delete(s.flows, f)
	}
}

// inUse is what all flows have together.
func (s *shares) inUse() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used
}
