// Package correlator decides what is to become of an occurrence: on which Event
// it is counted, how long the write of that can wait, and why.
//
// There are three decisions. Occurrences that are the same are counted on one
// Event. When a group, Events that differ by their message only, has many
// messages, its first ones keep Events of their own and all others are counted
// on one combined Event. And each subject, a source that reports about an
// object, has a budget of writes: when it is spent a write is put off, and never
// lost. The writes of repeats are spaced, farther and farther, and one token is
// set aside for the final count of each series while there are enough.
//
// Whoever may report Events may claim to be any source. So what different users
// report through an intake are different subjects: nobody spends the budget of
// another, nor makes the messages of another be combined. They share the Event of
// their series all the same.
//
// A Correlator is pure: it does no I/O, starts no goroutines, reads no clock,
// and the same occurrences at the same times give the same decisions. One
// goroutine owns it. It holds nothing that is owed, only what it needs to decide,
// which is bounded: an entry for each of the subjects that were heard last, with
// a bounded number of series. What it forgets costs a few more writes, and no
// counts. When there are too many subjects, the tenant that has most of them
// (occurrence.TenantOf) loses the one that has been quiet for longest.
//
// Unlike client-go's, with which it shares the defaults:
//
//   - a spent budget defers a write, where client-go forgets the count;
//   - a part of the budget is for first writes of series;
//   - writes of repeats are spaced, so there are fewer;
//   - the first messages of a group keep their Events, where client-go forgets
//     one at random for each that comes on top;
//   - a combined Event keeps the annotations, labels, action, related object and
//     reporting controller of what is counted on it;
//   - the reporting controller and instance belong to what makes Events the same,
//     and fieldPath, action and related object to what makes them similar;
//   - no keys collide because fields are joined;
//   - counts go on after a subject was forgotten, since the apiserver has them;
//   - what a subject owes is bounded by MaxSeries: further series are dropped.
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
	// NewSeries: nothing like it was seen lately.
	NewSeries Reason = iota
	// Repeat: it is one more of a series that was seen lately.
	Repeat
	// Combined: its group has so many messages that it is counted on the
	// combined Event.
	Combined
	// BudgetSpent: it is the first of a series, and its subject has as many
	// others that wait for its budget as it may.
	BudgetSpent
)

var reasons = [...]string{NewSeries: "new_series", Repeat: "repeat", Combined: "combined", BudgetSpent: "budget_spent"}

// String returns the name.
func (r Reason) String() string { return reasons[r] }

// Deferral is why a write can wait. Its names are metric labels.
type Deferral uint8

const (
	// NotDeferred: it is to be written now.
	NotDeferred Deferral = iota
	// Spaced: the series was written a short while ago.
	Spaced
	// Settling: the subject's tokens are scarce, so the write is put off until
	// the series has been quiet for a heartbeat.
	Settling
	// Budget: the subject has no token.
	Budget
)

var deferrals = [...]string{NotDeferred: "not_deferred", Spaced: "spaced", Settling: "settling", Budget: "budget"}

// String returns the name.
func (d Deferral) String() string { return deferrals[d] }

// Decision is what is to become of an occurrence.
type Decision struct {
	Reason Reason
	// Drop says why it is not to be written at all, or occurrence.NoReason.
	Drop occurrence.Reason
	// Target is the Event to count it on.
	Target occurrence.Target
	// Delay is how long the write can wait. It takes the place of what was
	// decided for an earlier occurrence of the series that is not yet written.
	Delay time.Duration
	// Deferred is why, if there is a delay.
	Deferred Deferral
}

// Correlator remembers subjects. Make it with New.
type Correlator struct {
	options  Options
	bucket   bucket
	seeds    seeds
	metrics  *metrics
	began    time.Time     // zero before the first occurrence
	now      time.Duration // since it began; never less than before
	encoding identity.Encoding
	keys     keys
	subjects *fairlru.Cache[uint64, uint64, *subject] // in groups of one tenant
	spare    *subject                                 // the last one that was evicted, to be used again
	// groups of Options.GroupKey, which may have members of several subjects.
	groups *fairlru.Cache[uint64, uint64, *group]
}

// New returns a correlator; an error is one of the options or of registering
// metrics.
func New(o Options) (*Correlator, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("correlator options: %w", err)
	}
	m, err := newMetrics(o.Registerer)
	if err != nil {
		return nil, err
	}
	c := &Correlator{options: o, bucket: newBucket(o.Burst, o.QPS), seeds: newSeeds(), metrics: m}
	evicted := func(_ uint64, s *subject) {
		m.evictions.Inc()
		c.spare = s
	}
	c.subjects = fairlru.New[uint64, uint64](int64(o.CacheSize), evicted)
	c.groups = fairlru.New[uint64, uint64, *group](int64(o.CacheSize), nil)
	return c, nil
}

// Correlate decides on an occurrence that is taken at the given time.
func (c *Correlator) Correlate(o *occurrence.Occurrence, now time.Time) (d Decision) {
	c.advance(now)
	c.encoding.Set(o.Identified())
	c.keys = c.seeds.keys(&c.encoding)
	c.decide(&d, o)
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

// subjectKey is the key of an occurrence's subject.
func (c *Correlator) subjectKey(o *occurrence.Occurrence) uint64 {
	if name, ok := c.options.subjectKey(o.Event); ok {
		return c.seeds.ofUser(c.seeds.named(name), o.User)
	}
	return c.seeds.ofUser(c.keys.subject, o.User)
}

// subject returns that of an occurrence, a new one if it is not remembered.
func (c *Correlator) subject(o *occurrence.Occurrence) *subject {
	key := c.subjectKey(o)
	if s, ok := c.subjects.Get(key); ok {
		return s
	}
	s := newSubject(c.spare, c.bucket.full(c.now))
	c.spare = nil
	c.subjects.Add(key, c.seeds.tenant(o), s, 1)
	c.metrics.subjects.Set(float64(c.subjects.Len()))
	return s
}

func (c *Correlator) decide(d *Decision, o *occurrence.Occurrence) {
	s := c.subject(o)
	d.Reason = c.route(&d.Target, s, o)
	r := s.find(d.Target.Key)
	switch {
	case r == nil:
		if r = s.add(&c.bucket, c.options.MaxSeries, c.now); r == nil {
			d.Reason, d.Drop = BudgetSpent, occurrence.BudgetSpent
			return
		}
		r.key = d.Target.Key
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
