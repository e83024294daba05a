package pipeline

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/eventd/eventd/internal/grace"
	"github.com/eventd/eventd/internal/instrument"
	"github.com/eventd/eventd/pkg/broadcaster"
	"github.com/eventd/eventd/pkg/correlator"
	"github.com/eventd/eventd/pkg/ledger"
	"github.com/eventd/eventd/pkg/occurrence"
)

// stalledAfter is the time after which a decision is reported as stalled. Usually it takes
// a microsecond.
const stalledAfter = 10 * time.Second

// decider decides on occurrences: a correlator.Correlator, or undecided.
type decider interface {
	Correlate(o *occurrence.Occurrence, now time.Time) correlator.Decision
}

// adder is the stage behind: a sink.Sink, or a remoteSink.
type adder interface {
	Add(o *occurrence.Occurrence, t occurrence.Target, delay time.Duration)
}

// correlating passes occurrences from a subscriber through a correlator to a sink, in one
// goroutine. The goroutine calls user code: Origins, key functions, the clock, callbacks of
// occurrences, a logger. Any of these may never return. So the goroutine can be abandoned;
// if a call returns after that, it changes nothing.
type correlating struct {
	subscriber *broadcaster.Subscriber
	ledger     *ledger.Ledger
	sink       adder
	trail      Trail // nil if nobody is told
	clock      clock.PassiveClock
	logger     klog.Logger

	// state is number*phases + phase. It determines whether the goroutine owns
	// current, or end, which abandoned it.
	state   atomic.Uint64
	number  uint64
	current *occurrence.Occurrence
	// cancelled makes the goroutine drop what is queued, and stops the watchdog.
	cancelled atomic.Bool
	dropped   int64         // weight dropped so; valid when done is closed
	done      chan struct{} // closed when the subscription has ended and is empty

	watchdog *time.Timer
	seen     uint64 // state at the last call of watch
	stalled  atomic.Bool
}

// phase is what the goroutine does. Only deciding and reporting call user code.
type phase uint64

const (
	working   phase = iota
	deciding        // on the current occurrence
	reporting       // the outcome, or adding to the sink
	abandoned
	phases
)

func phaseOf(state uint64) phase { return phase(state % uint64(phases)) }

// start starts the goroutine, which ends with the subscription. The caller must call end.
func (c *correlating) start(correlator decider) {
	c.done = make(chan struct{})
	c.watchdog = time.AfterFunc(time.Hour, c.watch)
	c.watchdog.Reset(stalledAfter) // after the assignment, which watch reads
	go c.run(correlator)
}

// run owns the correlator. If user code ends the goroutine, with runtime.Goexit, run starts
// another one.
func (c *correlating) run(correlator decider) {
	ended := false
	defer func() {
		if ended || phaseOf(c.state.Load()) == abandoned {
			return
		}
		defer func() { go c.run(correlator) }()
		if c.advance(deciding, reporting) {
			c.ledger.Settle(c.current, occurrence.Settlement{Outcome: occurrence.Dropped, Reason: occurrence.Malformed})
		}
	}()
	for {
		o, ok := c.subscriber.Receive()
		if !ok {
			ended = true
			close(c.done)
			return
		}
		if !c.process(correlator, o) {
			return
		}
	}
}

// process handles one occurrence. It returns false if the goroutine was abandoned.
func (c *correlating) process(correlator decider, o *occurrence.Occurrence) bool {
	c.number++
	if c.cancelled.Load() {
		c.dropped += o.Weight
		c.enter(reporting)
		c.ledger.Settle(o, occurrence.Settlement{Outcome: occurrence.Dropped, Reason: occurrence.Shutdown})
		return c.advance(reporting, working)
	}
	c.current = o
	c.enter(deciding)
	o = o.WithEvent()
	d := correlator.Correlate(o, c.clock.Now())
	if !c.advance(deciding, reporting) {
		return false
	}
	if d.Drop != occurrence.NoReason {
		c.ledger.Settle(o, occurrence.Settlement{Outcome: occurrence.Dropped, Reason: d.Drop})
	} else {
		if c.trail != nil {
			c.trail.Decided(o, d)
		}
		c.sink.Add(o, d.Target, d.Delay)
	}
	return c.advance(reporting, working)
}

// enter sets the phase of a goroutine that is working, which cannot be abandoned.
func (c *correlating) enter(p phase) { c.state.Store(c.in(p)) }

// advance changes the phase. It returns false if the goroutine was abandoned.
func (c *correlating) advance(from, to phase) bool {
	return c.state.CompareAndSwap(c.in(from), c.in(to))
}

func (c *correlating) in(p phase) uint64 { return c.number*uint64(phases) + uint64(p) }

// end waits until the subscription, which must have ended, is empty. When the context ends,
// the rest is dropped. It returns the dropped weight, at most two grace periods after that.
func (c *correlating) end(ctx context.Context) (dropped int64) {
	defer c.watchdog.Stop()
	defer c.cancelled.Store(true) // watch does not reset the watchdog
	select {
	case <-c.done:
		return 0
	case <-ctx.Done():
	}
	c.cancelled.Store(true)
	if grace.Wait(c.done) {
		return c.dropped
	}
	for !c.abandon() { // it is working, which is short
		select {
		case <-c.done:
			return c.dropped
		case <-time.After(time.Millisecond):
		}
	}
	return c.dropped + c.dropRest()
}

// abandon abandons the goroutine if it runs user code, and reports whether it did.
func (c *correlating) abandon() bool {
	state := c.state.Load()
	if phaseOf(state) == working || !c.state.CompareAndSwap(state, uint64(abandoned)) {
		return false
	}
	if phaseOf(state) != deciding {
		c.current = nil // it is settled, or in the sink
	}
	return true
}

// dropRest settles what an abandoned goroutine has left, and returns its weight.
func (c *correlating) dropRest() (weight int64) {
	end := occurrence.Settlement{Outcome: occurrence.Dropped, Reason: occurrence.Shutdown}
	var left []*occurrence.Occurrence
	if c.current != nil {
		left = append(left, c.current)
	}
	for o, ok := c.subscriber.Receive(); ok; o, ok = c.subscriber.Receive() {
		left = append(left, o)
	}
	for _, o := range left {
		c.ledger.Count(o, end)
		weight += o.Weight
	}
	grace.Run(func() {
		for _, o := range left {
			if o.Settled != nil {
				o.Settled(end)
			}
		}
	})
	return weight
}

// watch reports a decision that stalls. Meanwhile the queue fills, and what does not fit is
// dropped and counted.
func (c *correlating) watch() {
	state := c.state.Load()
	stalled := phaseOf(state) == deciding && state == c.seen
	c.seen = state
	if stalled && !c.stalled.Swap(true) {
		c.logger.Error(nil, "A key function, the clock of the correlator or an Origin has not returned; nothing is written until it does", "for", stalledAfter)
	}
	if !stalled {
		c.stalled.Store(false)
	}
	if !c.cancelled.Load() {
		c.watchdog.Reset(stalledAfter)
	}
}

// register registers the gauge of a stalled decision.
func (c *correlating) register(r prometheus.Registerer) error {
	set := instrument.New(r)
	set.GaugeFunc("eventd_correlator_stalled", "1 while a key function has not returned for 10 s or more. Nothing is written meanwhile.",
		func() float64 { return instrument.Bool(c.stalled.Load()) })
	return set.Err()
}
