// Package correlator decides what is to become of an occurrence: on which Event
// it is counted, and why.
//
// A Correlator is pure: it does no I/O, starts no goroutines, reads no clock,
// and the same occurrences at the same times give the same decisions. One
// goroutine owns it. Its memory is bounded by the number of series that it
// remembers.
package correlator

import (
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/internal/occurrence"
)

// Reason is why a decision is what it is. Its values are metric labels.
type Reason string

const (
	// NewSeries: nothing like it was seen lately.
	NewSeries Reason = "new_series"
	// Repeat: it is one more of a series that was seen within the interval.
	Repeat Reason = "repeat"
)

// Decision is what is to become of an occurrence.
type Decision struct {
	Reason Reason
	// Target is the Event to count it on.
	Target occurrence.Target
}

// Options of a correlator.
type Options struct {
	// CacheSize is the number of series that are remembered. At about 150 bytes
	// each, the default takes up to 600 KiB.
	CacheSize int
	// Interval is how long a series must be quiet to count as new again.
	Interval time.Duration
	// Registerer takes the metrics; nil leaves them unregistered.
	Registerer prometheus.Registerer
}

// DefaultOptions returns client-go's defaults.
func DefaultOptions() Options { return Options{CacheSize: 4096, Interval: 10 * time.Minute} }

// Correlator remembers series. Make it with New.
type Correlator struct {
	interval  time.Duration
	series    *simplelru.LRU[identity.Digest, time.Time] // when it was last seen
	decisions map[Reason]prometheus.Counter
}

// New returns a correlator; an error is one of the options or of registering
// metrics.
func New(o Options) (*Correlator, error) {
	if o.Interval <= 0 {
		return nil, fmt.Errorf("correlator interval must be greater than 0, not %v", o.Interval)
	}
	series, err := simplelru.NewLRU[identity.Digest, time.Time](o.CacheSize, nil)
	if err != nil {
		return nil, fmt.Errorf("correlator cache size %d: %w", o.CacheSize, err)
	}
	c := &Correlator{interval: o.Interval, series: series, decisions: make(map[Reason]prometheus.Counter)}
	counts := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "eventd_correlator_decisions_total",
		Help: "Decisions on occurrences by their reason.",
	}, []string{"reason"})
	for _, reason := range []Reason{NewSeries, Repeat} {
		c.decisions[reason] = counts.WithLabelValues(string(reason))
	}
	if o.Registerer != nil {
		if err := o.Registerer.Register(counts); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// Correlate decides on an occurrence that is taken at the given time.
func (c *Correlator) Correlate(o *occurrence.Occurrence, now time.Time) Decision {
	reason, digest := NewSeries, o.Series()
	if last, ok := c.series.Get(digest); ok && now.Sub(last) <= c.interval {
		reason = Repeat
	}
	c.series.Add(digest, now)
	c.decisions[reason].Inc()
	return Decision{
		Reason: reason,
		Target: occurrence.Target{
			Digest:   digest,
			Event:    o.Event,
			Combined: o.Event.EventTime.IsZero() && strings.HasPrefix(o.Event.Message, identity.CombinedPrefix),
		},
	}
}
