package occurrence

import "fmt"

// Budget is a token bucket for writes about each subject, in place of that of
// correlator.Options: the occurrences of a subject with equal budgets share a bucket, which no
// others use. It never changes. Make it with NewBudget; a zero Budget is none.
type Budget struct {
	name  string
	burst int
	qps   float64
}

// NewBudget returns a budget of a burst of writes, and of so many per second after that. A QPS
// of 1e9 or more, as math.Inf(1), means no limit. Budgets of different names are not equal. An
// error says which argument is invalid.
func NewBudget(name string, burst int, qps float64) (*Budget, error) {
	switch {
	case burst < 1:
		return nil, fmt.Errorf("the burst of a budget must be greater than 0, not %d", burst)
	case !(qps > 0):
		return nil, fmt.Errorf("the QPS of a budget must be greater than 0, not %v", qps)
	}
	return &Budget{name: name, burst: burst, qps: qps}, nil
}

// Name returns the name.
func (b *Budget) Name() string { return b.name }

// Burst returns the size of the bucket, in writes; 0 if there is no budget.
func (b *Budget) Burst() int { return b.burst }

// QPS returns the refill rate, in writes per second.
func (b *Budget) QPS() float64 { return b.qps }
