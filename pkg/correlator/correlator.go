// Package correlator decides on which Event an occurrence is counted, how long the write
// can be deferred, and why. It does what client-go's record.EventCorrelator does, with the
// same defaults.
//
//   - Deduplication: occurrences of a series, equal except for time and count, are counted
//     on one Event.
//   - Aggregation: the first messages of a group, whose Events differ only in the message,
//     have their own Events. All others are counted on the combined Event of the group.
//   - Budget: each subject, which is a source that reports about an object, has a token
//     bucket for writes. If it is empty the write is deferred. Writes of repeats are
//     spaced, and a token is set aside for the final count of each series. Occurrences with
//     a Budget of their own have a bucket of their own, as if their subject were another one.
//
// A user may claim any source. So the authenticated user is a part of the subject and of
// the group: nobody can spend the budget of another user, or have its messages combined.
// Users do share the Event of a series.
//
// A Correlator does no I/O, starts no goroutines and reads no clock. Decisions depend only
// on the occurrences and their times. One goroutine owns it, and it needs no shutdown. Its
// memory is bounded: least recently used subjects are evicted, first those of the tenant
// (occurrence.TenantOf) that has most. An eviction costs a few more writes and loses no
// count: pending occurrences are in the sink.
//
// docs/correlation.md describes the rules. differences_test.go shows each difference from
// client-go.
package correlator

import (
	"fmt"
	"time"

	"github.com/eventd/eventd/internal/fairlru"
	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/occurrence"
)

// Reason is why a decision is what it is. Its names are metric labels.
type Reason uint8

const (
	// NewSeries: it is the first of a series, or the first after Options.Interval.
	NewSeries Reason = iota
	// Repeat: it is a further one of a series.
	Repeat
	// Combined: its group has too many messages, so it is counted on the combined
	// Event.
	Combined
	// BudgetSpent: it is the first of a series, and Options.MaxSeries others of its
	// subject wait for the budget. It is dropped.
	BudgetSpent
)

var reasons = [...]string{NewSeries: "new_series", Repeat: "repeat", Combined: "combined", BudgetSpent: "budget_spent"}

// String returns the metric label.
func (r Reason) String() string { return reasons[r] }

// Deferral is why a write is deferred. Its names are metric labels.
type Deferral uint8

const (
	// NotDeferred: it is written now.
	NotDeferred Deferral = iota
	// Spaced: the series was written recently.
	Spaced
	// Settling: tokens are scarce, so the write is deferred until the series was
	// quiet for a heartbeat.
	Settling
	// Budget: the subject has no token, so the write is deferred until the next one.
	Budget
)

var deferrals = [...]string{NotDeferred: "not_deferred", Spaced: "spaced", Settling: "settling", Budget: "budget"}

// String returns the metric label.
func (d Deferral) String() string { return deferrals[d] }

// Decision is the result for one occurrence.
type Decision struct {
	Reason Reason
	// Drop is the reason to drop the occurrence, or occurrence.NoReason.
	Drop occurrence.Reason
	// Target is the Event to count it on.
	Target occurrence.Target
	// Delay is how long to defer the write of the series. It replaces the Delay of
	// earlier decisions on the series that is not yet over.
	Delay time.Duration
	// Deferred is the reason for the Delay.
	Deferred Deferral
}

// Correlator decides on occurrences. Make it with New. It is not safe for use by several
// goroutines at once.
type Correlator struct {
	options  Options
	usual    bucket // of Options
	bucket   bucket // of the occurrence
	seeds    seeds
	metrics  *metrics
	began    time.Time     // zero before the first occurrence
	now      time.Duration // since began; never decreases
	encoding identity.Encoding
	keys     keys
	subjects *fairlru.Cache[uint64, uint64, subject] // by tenant
	// groups are those of Options.GroupKey, which may span subjects.
	groups *fairlru.Cache[uint64, uint64, *fullGroup]
}

// New returns a correlator. An error is one of the options or of registering metrics.
func New(o Options) (*Correlator, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("correlator options: %w", err)
	}
	m, err := newMetrics(o.Registerer)
	if err != nil {
		return nil, err
	}
	c := &Correlator{options: o, usual: newBucket(o.Burst, o.QPS), seeds: newSeeds(), metrics: m}
	c.bucket = c.usual
	c.subjects = fairlru.New[uint64, uint64](int64(o.CacheSize), func(_ uint64, _ subject) { m.evictions.Inc() })
	c.groups = fairlru.New[uint64, uint64, *fullGroup](int64(o.CacheSize), nil)
	return c, nil
}

// Correlate decides on an occurrence at the given time. A time before that of an earlier
// call counts as the earlier one.
func (c *Correlator) Correlate(o *occurrence.Occurrence, now time.Time) (d Decision) {
	c.advance(now)
	c.encoding.Set(o.Identified())
	c.keys = c.seeds.keys(&c.encoding)
	c.bucket = c.bucketOf(o.Budget)
	key := c.subjectKey(o)
	s := c.subject(key, o)
	before := s.weight()
	c.decide(&d, s, o)
	if weight := s.weight(); weight != before {
		c.subjects.Weigh(key, weight)
		c.metrics.subjects.Set(float64(c.subjects.Len()))
	}
	c.metrics.decisions[d.Reason].Inc()
	if d.Delay > 0 {
		c.metrics.deferred[d.Deferred].Inc()
	}
	return d
}

func (c *Correlator) advance(now time.Time) {
	if c.began.IsZero() {
		c.began = now
	}
	c.now = max(c.now, now.Sub(c.began))
}

// bucketOf returns the bucket of an occurrence. It is cheaper to compute than to keep with each
// subject.
func (c *Correlator) bucketOf(b *occurrence.Budget) bucket {
	if !isSet(b) {
		return c.usual
	}
	return newBucket(b.Burst(), b.QPS())
}

// isSet reports whether an occurrence has a budget of its own.
func isSet(b *occurrence.Budget) bool { return b != nil && b.Burst() > 0 }

// subjectKey returns the key of an occurrence's subject. What has another budget is another
// subject, so neither spends the tokens of the other.
func (c *Correlator) subjectKey(o *occurrence.Occurrence) uint64 {
	key := c.keys.subject
	if name, ok := c.options.subjectKey(o.Event); ok {
		key = c.seeds.named(name)
	}
	key = c.seeds.ofUser(key, o.User)
	if isSet(o.Budget) {
		key = c.seeds.ofBudget(key, o.Budget)
	}
	return key
}

// subject returns the subject of an occurrence, a new one if it is not in the cache. It is valid until the
// next call.
func (c *Correlator) subject(key uint64, o *occurrence.Occurrence) *subject {
	if s := c.subjects.Use(key); s != nil {
		return s
	}
	s := c.subjects.Insert(key, c.seeds.tenant(o), subject{budget: c.bucket.full(c.now)}, 1)
	c.metrics.subjects.Set(float64(c.subjects.Len()))
	return s
}

func (c *Correlator) decide(d *Decision, s *subject, o *occurrence.Occurrence) {
	d.Reason = c.route(&d.Target, s, o)
	r := s.find(c.seeds.seriesKey(d.Target.Key))
	switch {
	case r == nil:
		if r = s.add(&c.bucket, c.options.MaxSeries, c.now); r == nil {
			d.Reason, d.Drop = BudgetSpent, occurrence.BudgetSpent
			return
		}
		r.key = c.seeds.seriesKey(d.Target.Key)
		s.begin(c, r, c.now)
	case r.due <= c.now && c.now-r.seen > c.options.Interval:
		s.restart(c, r, c.now)
	default:
		if d.Reason == NewSeries {
			d.Reason = Repeat
		}
		s.repeat(c, r, c.now, c.encoding.IsNewStyle())
	}
	if d.Delay = r.due - c.now; d.Delay > 0 {
		d.Deferred = r.why
	}
}
