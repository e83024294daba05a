package faultproxy

import (
	"net/http"
	"sync"
)

// OverCapacity is the fault, in the Record, of a write above the capacity.
const OverCapacity = "over capacity"

// refusal is that of the apiserver's priority and fairness.
var refusal = Status(http.StatusTooManyRequests).RetryAfter(1).PlainText()

// SetCapacity limits concurrent Event writes; 0 is no limit. A write holds its slot
// until its request has ended, hangs and delays included. Those above the limit are
// refused; those that have a slot keep it.
func (p *Proxy) SetCapacity(atOnce int) {
	p.limiter.mu.Lock()
	defer p.limiter.mu.Unlock()
	p.limiter.limit = atOnce
}

// limiter counts the slots in use.
type limiter struct {
	mu    sync.Mutex
	limit int // 0 is none
	used  int
}

// acquire acquires a slot, which the caller releases, if one is free.
func (l *limiter) acquire() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.limit != 0 && l.used >= l.limit {
		return false
	}
	l.used++
	return true
}

func (l *limiter) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.used--
}
