// Package ledger counts occurrences, from recorded to settled. A pipeline has one
// ledger per sink; metrics and tests read it.
//
// Whenever nothing is in motion,
//
//	recorded + adopted = sum of settled over all outcomes + pending
//
// where pending is the sum of eventd_occurrences_pending, which the broadcaster and the
// sink measure themselves. The ledger does not export it: if a stage lost an
// occurrence, the equation would no longer hold.
//
// A Ledger is safe for use by many goroutines, starts none and needs no shutdown.
package ledger

import (
	"maps"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/eventd/eventd/pkg/occurrence"
)

// Ledger counts occurrences by weight. Make it with New.
type Ledger struct {
	recorded, adopted atomic.Int64
	outcomes          map[occurrence.Outcome]*atomic.Int64 // all but Dropped and Filtered; fixed after New
	dropped           map[occurrence.Reason]*atomic.Int64  // fixed after New
	filtered          filtered
	settled           func(*occurrence.Occurrence, occurrence.Settlement) // see OnSettle

	recordedDesc, adoptedDesc, settledDesc *prometheus.Desc
}

var _ prometheus.Collector = &Ledger{}

// New returns a ledger in which every count is 0. The caller may register it with
// Prometheus.
func New() *Ledger {
	l := &Ledger{
		outcomes: make(map[occurrence.Outcome]*atomic.Int64),
		dropped:  make(map[occurrence.Reason]*atomic.Int64),
		filtered: filtered{counts: map[occurrence.Reason]int64{occurrence.NoReason: 0}},
		recordedDesc: prometheus.NewDesc("eventd_occurrences_recorded_total",
			"Occurrences recorded.", nil, nil),
		adoptedDesc: prometheus.NewDesc("eventd_occurrences_adopted_total",
			"Occurrences adopted from other replicas, which recorded them.", nil, nil),
		settledDesc: prometheus.NewDesc("eventd_occurrences_settled_total",
			"Occurrences by final outcome and, if dropped or filtered, by reason.",
			[]string{"outcome", "reason"}, nil),
	}
	for _, outcome := range occurrence.Outcomes {
		if outcome != occurrence.Dropped && outcome != occurrence.Filtered {
			l.outcomes[outcome] = new(atomic.Int64)
		}
	}
	for _, reason := range occurrence.Reasons {
		l.dropped[reason] = new(atomic.Int64)
	}
	return l
}

// Record counts o as recorded. It must be called once per occurrence, before Settle
// or Add.
func (l *Ledger) Record(o *occurrence.Occurrence) { l.recorded.Add(o.Weight) }

// Adopt counts a weight as adopted: recorded by another process. It must be called before Add.
func (l *Ledger) Adopt(weight int64) { l.adopted.Add(weight) }

// OnSettle has a function called for each occurrence that Settle and Count count. It must not
// block. OnSettle must be called before anything is counted.
func (l *Ledger) OnSettle(settled func(*occurrence.Occurrence, occurrence.Settlement)) {
	l.settled = settled
}

// Settle counts o under the outcome of s, and calls o.Settled.
func (l *Ledger) Settle(o *occurrence.Occurrence, s occurrence.Settlement) {
	l.Count(o, s)
	if o.Settled != nil {
		o.Settled(s)
	}
}

// Count is Settle without the call of o.Settled.
func (l *Ledger) Count(o *occurrence.Occurrence, s occurrence.Settlement) {
	l.Add(s.Outcome, s.Reason, o.Weight)
	if l.settled != nil {
		l.settled(o, s)
	}
}

// Add counts a weight under an outcome, for stages that settle a part of an
// occurrence or several at once. The reason is ignored unless the outcome is Dropped or
// Filtered. It panics if the outcome, or the reason of a drop, is not listed in package
// occurrence.
func (l *Ledger) Add(outcome occurrence.Outcome, reason occurrence.Reason, weight int64) {
	switch outcome {
	case occurrence.Dropped:
		l.dropped[reason].Add(weight)
	case occurrence.Filtered:
		l.filtered.add(reason, weight)
	default:
		l.outcomes[outcome].Add(weight)
	}
}

// maxRules limits the rules with a counter of their own: each is a series of a metric, and an
// operator may rename rules as long as the process runs.
const maxRules = 256

// filtered counts what rules have filtered, by rule. Counters are never removed. Rules above
// the limit share the one without a name.
type filtered struct {
	mu     sync.Mutex
	counts map[occurrence.Reason]int64
}

func (f *filtered) add(rule occurrence.Reason, weight int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, known := f.counts[rule]; !known && len(f.counts) > maxRules {
		rule = occurrence.NoReason
	}
	f.counts[rule] += weight
}

func (f *filtered) read() map[occurrence.Reason]int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.counts)
}

// Totals are the counts of a ledger. They are read one after the other, so they are
// consistent only while nothing is recorded or settled.
type Totals struct {
	Recorded int64
	Adopted  int64                        // recorded by other processes
	Outcomes map[occurrence.Outcome]int64 // Dropped and Filtered are the sums over all reasons
	Dropped  map[occurrence.Reason]int64  // only reasons that occurred
	Filtered map[occurrence.Reason]int64  // by rule, only those that occurred
}

// Totals reads the ledger.
func (l *Ledger) Totals() Totals {
	t := Totals{
		Outcomes: make(map[occurrence.Outcome]int64, len(l.outcomes)+2),
		Dropped:  make(map[occurrence.Reason]int64),
		Filtered: make(map[occurrence.Reason]int64),
	}
	// Settled is read before recorded and adopted, so that pending is never negative.
	for outcome, n := range l.outcomes {
		t.Outcomes[outcome] = n.Load()
	}
	t.Outcomes[occurrence.Dropped] = 0
	for reason, n := range l.dropped {
		if v := n.Load(); v != 0 {
			t.Dropped[reason] = v
			t.Outcomes[occurrence.Dropped] += v
		}
	}
	t.Outcomes[occurrence.Filtered] = 0
	for rule, n := range l.filtered.read() {
		if n != 0 {
			t.Filtered[rule] = n
			t.Outcomes[occurrence.Filtered] += n
		}
	}
	t.Recorded, t.Adopted = l.recorded.Load(), l.adopted.Load()
	return t
}

// Settled returns the sum over all outcomes.
func (t Totals) Settled() int64 {
	var sum int64
	for _, n := range t.Outcomes {
		sum += n
	}
	return sum
}

// Written returns how much the sink of this ledger added to the counts of Events. It
// does not include Replayed, which another write has counted.
func (t Totals) Written() int64 {
	return t.Outcomes[occurrence.Created] + t.Outcomes[occurrence.Merged] + t.Outcomes[occurrence.Aggregated]
}

// Pending returns what is recorded or adopted and not settled, by the counts of the ledger.
func (t Totals) Pending() int64 { return t.Recorded + t.Adopted - t.Settled() }

// Describe implements prometheus.Collector.
func (l *Ledger) Describe(ch chan<- *prometheus.Desc) {
	ch <- l.recordedDesc
	ch <- l.adoptedDesc
	ch <- l.settledDesc
}

// Collect implements prometheus.Collector.
func (l *Ledger) Collect(ch chan<- prometheus.Metric) {
	settled := func(outcome occurrence.Outcome, reason occurrence.Reason, n int64) {
		ch <- prometheus.MustNewConstMetric(l.settledDesc, prometheus.CounterValue,
			float64(n), string(outcome), string(reason))
	}
	for outcome, n := range l.outcomes {
		settled(outcome, occurrence.NoReason, n.Load())
	}
	for reason, n := range l.dropped {
		settled(occurrence.Dropped, reason, n.Load())
	}
	for rule, n := range l.filtered.read() {
		settled(occurrence.Filtered, rule, n)
	}
	ch <- prometheus.MustNewConstMetric(l.recordedDesc, prometheus.CounterValue, float64(l.recorded.Load()))
	ch <- prometheus.MustNewConstMetric(l.adoptedDesc, prometheus.CounterValue, float64(l.adopted.Load()))
}
