package delivery

import (
	"maps"
	"sync"
	"time"

	"github.com/eventd/eventd/internal/ratelimitedlog"
	"github.com/eventd/eventd/pkg/observer"
)

// State is what a receiver does.
type State string

// The states of a receiver.
const (
	// StateStandby: this process does not lead.
	StateStandby State = "standby"
	// StateStarting: the receiver is being opened, or its starting point stored.
	StateStarting State = "starting"
	// StateWaiting: everything that was observed is delivered.
	StateWaiting State = "waiting"
	// StateSending: an attempt is in flight.
	StateSending State = "sending"
	// StateBackingOff: an attempt has failed, and the next one comes later.
	StateBackingOff State = "backing_off"
	// StateHanging: a call ignores its timeout. Nothing is sent until it returns.
	StateHanging State = "hanging"
	// StatePaused: the configuration pauses the receiver.
	StatePaused State = "paused"
)

// Totals are the accounts of a receiver in this process, in versions. At every quiet moment,
// Observed is the sum of the others.
type Totals struct {
	Observed   int64
	Delivered  int64
	Filtered   map[string]int64 // by route
	Superseded int64
	Rejected   int64 // given up, since the destination has rejected them
	HandedOver int64 // left to a later reader, of this process or of another one
	Pending    int64
	// Summaries stand for versions that a route has throttled, which are filtered.
	Summaries Summaries
}

// Summaries are the accounts of the summaries of a receiver in this process. They are in memory only,
// and outside of the promise of delivery.
type Summaries struct {
	Delivered int64
	Rejected  int64 // by the destination
	Lost      int64 // with the term or the configuration of the receiver, or not delivered by new routes
	Pending   int64
}

// Settled is the sum over all outcomes.
func (t *Totals) Settled() int64 {
	sum := t.Delivered + t.Superseded + t.Rejected + t.HandedOver
	for _, n := range t.Filtered {
		sum += n
	}
	return sum
}

// result is the result of an attempt to send.
type result string

const (
	resultSuccess   result = "success"
	resultPartial   result = "partial"   // some records are rejected
	resultRefused   result = "refused"   // for good
	resultThrottled result = "throttled" // with a time to wait
	resultTimeout   result = "timeout"
	resultError     result = "error"
	resultCanceled  result = "canceled" // by the end of the term, or by another configuration
)

var results = []result{resultSuccess, resultPartial, resultRefused, resultThrottled, resultTimeout, resultError, resultCanceled}

// account has the accounts, the metrics and the status of a receiver, from its first
// configuration until it is removed. Its worker changes it, anybody reads it.
type account struct {
	name  string
	lines *ratelimitedlog.Limiter

	mu sync.Mutex
	// totals are without Observed and Pending, which depend on the reader.
	totals Totals
	// observed is what former readers have observed.
	observed int64
	reader   Reader // nil without one
	// taken is what the reader has returned, and held what of that is not settled.
	taken, held int64
	// oldest is when the first of held was observed.
	oldest time.Time

	state      State
	until      time.Time // of backing off
	retrying   bool      // nothing was settled since an attempt has failed
	lastError  string
	failedAt   time.Time
	gaps       int64
	restores   int64
	openErrors int64
	attempts   map[result]int64
	duration   histogram
}

func newAccount(name string, routes []string) *account {
	a := &account{
		name: name, lines: ratelimitedlog.New(ratelimitedlog.Interval), state: StateStandby,
		totals: Totals{Filtered: make(map[string]int64)}, attempts: make(map[result]int64),
	}
	a.addRoutes(routes)
	for _, r := range results {
		a.attempts[r] = 0
	}
	return a
}

// addRoutes has the counters of routes at 0 before they filter something.
func (a *account) addRoutes(routes []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, route := range append([]string{""}, routes...) {
		a.totals.Filtered[route] += 0
	}
}

// attach begins to count what a reader observes.
func (a *account) attach(r Reader) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reader, a.retrying = r, false
}

// detach closes the reader. What is not settled is handed over.
func (a *account) detach() {
	a.mu.Lock()
	r := a.reader
	a.mu.Unlock()
	if r == nil {
		return
	}
	r.Close()
	a.mu.Lock()
	defer a.mu.Unlock()
	observed := r.Observed()
	a.observed += observed
	a.totals.HandedOver += observed - a.taken + a.held
	a.totals.Summaries.Lost += a.totals.Summaries.Pending
	a.totals.Summaries.Pending = 0
	a.reader, a.taken, a.held = nil, 0, 0
}

// take adds a batch that the reader has returned.
func (a *account) take(b *observer.Batch) {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := int64(len(b.Entries))
	a.taken += n + b.Superseded
	a.totals.Superseded += b.Superseded
	if a.held += n; n > 0 {
		a.oldest = b.Entries[0].Observed
	}
	if b.Gap {
		a.gaps++
	}
	if b.Restored {
		a.restores++
	}
}

// restore counts a restoration that the reader does not report.
func (a *account) restore() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.restores++
}

func (a *account) filter(route string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.held--
	a.totals.Filtered[route]++
}

// throttle counts a version that a summary stands for. first: it is the first of that summary.
func (a *account) throttle(route string, first bool) {
	a.filter(route)
	if first {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.totals.Summaries.Pending++
	}
}

// settleSummaries counts summaries as settled.
func (a *account) settleSummaries(delivered, rejected, lost int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := &a.totals.Summaries
	s.Delivered += int64(delivered)
	s.Rejected += int64(rejected)
	s.Lost += int64(lost)
	s.Pending -= int64(delivered + rejected + lost)
	if delivered+rejected > 0 {
		a.retrying = false
	}
}

// settle counts the first held versions as settled. next is when the one after them was observed.
func (a *account) settle(delivered, rejected int, next time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.held -= int64(delivered + rejected)
	a.totals.Delivered += int64(delivered)
	a.totals.Rejected += int64(rejected)
	a.oldest = next
	a.retrying = false
}

// attempted counts an attempt to send.
func (a *account) attempted(r result, took time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.attempts[r]++
	a.duration.observe(took)
}

// failed keeps the last error for the status.
func (a *account) failed(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lastError, a.failedAt = bounded(err).Error(), time.Now()
}

// openFailed counts a receiver that could not be made.
func (a *account) openFailed() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.openErrors++
}

func (a *account) setState(s State) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.state, a.until = s, time.Time{}
}

func (a *account) setBackingOff(until time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.state, a.until, a.retrying = StateBackingOff, until, true
}

func (a *account) isRetrying() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.retrying
}

// readTotals returns the accounts. The mutex must be held.
func (a *account) readTotals() Totals {
	t := a.totals
	t.Filtered = maps.Clone(t.Filtered)
	t.Observed = a.observed
	if a.reader != nil {
		observed := a.reader.Observed()
		t.Observed += observed
		t.Pending = observed - a.taken + a.held
	}
	return t
}

// lag returns the age of the oldest pending version. The mutex must be held.
func (a *account) lag(now time.Time) time.Duration {
	var oldest time.Time
	switch {
	case a.held > 0:
		oldest = a.oldest
	case a.reader != nil:
		oldest = a.reader.OldestPending()
	}
	if oldest.IsZero() {
		return 0
	}
	return max(0, now.Sub(oldest))
}
