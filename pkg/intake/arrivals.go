package intake

import (
	"sync"
	"time"
)

// arrivals are the times at which requests in flight have arrived. The zero value is ready. It is safe for
// concurrent use, and every call takes constant time.
type arrivals struct {
	mu            sync.Mutex
	first, newest *arrival // in a list, oldest first
}

// arrival is that of one request.
type arrival struct {
	at            time.Time
	before, after *arrival
}

// begin adds a request that arrives now. The caller calls end once, and leaves a alone until then.
func (s *arrivals) begin(a *arrival) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*a = arrival{at: time.Now(), before: s.newest}
	if s.newest = a; a.before == nil {
		s.first = a
	} else {
		a.before.after = a
	}
}

// end removes a request.
func (s *arrivals) end(a *arrival) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.before == nil {
		s.first = a.after
	} else {
		a.before.after = a.after
	}
	if a.after == nil {
		s.newest = a.before
	} else {
		a.after.before = a.before
	}
}

// oldest returns the age of the oldest request, 0 if there is none.
func (s *arrivals) oldest() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.first == nil {
		return 0
	}
	return time.Since(s.first.at)
}
