package pipeline

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/eventd/eventd/internal/grace"
	"github.com/eventd/eventd/pkg/broadcaster"
	"github.com/eventd/eventd/pkg/correlator"
	"github.com/eventd/eventd/pkg/ledger"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink"
)

// stalledAfter is how long one decision may take until it is reported. The usual
// one takes a microsecond.
const stalledAfter = 10 * time.Second

// correlating takes occurrences from a subscription to a sink, through a
// correlator, in one goroutine. That one runs code of others: key functions, the
// clock, callbacks of occurrences, a logger. Any of them may never return. So
// the goroutine can be abandoned; then it touches nothing when they return.
type correlating struct {
	subscriber *broadcaster.Subscriber
	ledger     *ledger.Ledger
	sink       *sink.Sink
	clock      clock.PassiveClock
	logger     klog.Logger

	// state is the phase of the goroutine, and above it the number of the
	// occurrence. It says who owns inHand: the goroutine, or who abandons it.
	state  atomic.Uint64
	number uint64
	inHand *occurrence.Occurrence
	// hurried: what is still queued is dropped.
	hurried atomic.Bool
	dropped int64         // for that; read it when done is closed
	done    chan struct{} // closed when there is nothing left to take

	watchdog *time.Timer
	seen     uint64 // the state when the watchdog looked last
	stalled  atomic.Bool
}

// phase is what the goroutine does. Only deciding and telling run code of others.
type phase uint64

const (
	working  phase = iota
	deciding       // on the occurrence in hand
	telling        // the outcome is decided; whoever waits is told
	abandoned
	phases
)

func phaseOf(state uint64) phase { return phase(state % uint64(phases)) }

// start starts the goroutine. It ends with the subscription, and must be waited for
// with end.
func (c *correlating) start(correlator *correlator.Correlator) {
	c.done = make(chan struct{})
	c.watchdog = time.AfterFunc(time.Hour, c.watch)
	c.watchdog.Reset(stalledAfter) // now that it knows its timer
	go c.run(correlator)
}

// run owns the correlator. If code of others ends the goroutine, as runtime.Goexit
// does, another one takes its place.
func (c *correlating) run(correlator *correlator.Correlator) {
	ended := false
	defer func() {
		if ended || phaseOf(c.state.Load()) == abandoned {
			return
		}
		defer func() { go c.run(correlator) }()
		if c.enters(deciding, telling) {
			c.ledger.Settle(c.inHand, occurrence.Settlement{Outcome: occurrence.Dropped, Reason: occurrence.Malformed})
		}
	}()
	for {
		o, ok := c.subscriber.Receive()
		if !ok {
			ended = true
			close(c.done)
			return
		}
		if !c.take(correlator, o) {
			return
		}
	}
}

// take decides on one occurrence. It returns false if the goroutine was abandoned.
func (c *correlating) take(correlator *correlator.Correlator, o *occurrence.Occurrence) bool {
	c.number++
	if c.hurried.Load() {
		c.dropped += o.Weight
		c.enter(telling)
		c.ledger.Settle(o, occurrence.Settlement{Outcome: occurrence.Dropped, Reason: occurrence.Shutdown})
		return c.enters(telling, working)
	}
	o = o.WithEvent()
	c.inHand = o
	c.enter(deciding)
	d := correlator.Correlate(o, c.clock.Now())
	if !c.enters(deciding, telling) {
		return false
	}
	if d.Drop != occurrence.NoReason {
		c.ledger.Settle(o, occurrence.Settlement{Outcome: occurrence.Dropped, Reason: d.Drop})
	} else {
		c.sink.Add(o, d.Target, d.Delay)
	}
	return c.enters(telling, working)
}

// enter is for a goroutine that works, which nobody abandons.
func (c *correlating) enter(p phase) { c.state.Store(c.in(p)) }

// enters goes from one phase to the next, unless the goroutine was abandoned.
func (c *correlating) enters(from, to phase) bool {
	return c.state.CompareAndSwap(c.in(from), c.in(to))
}

func (c *correlating) in(p phase) uint64 { return c.number*uint64(phases) + uint64(p) }

// end waits until the subscription is empty, which must have ended. When the
// context ends, what is left is dropped. It returns how much that was, within two
// periods of grace.
func (c *correlating) end(ctx context.Context) (dropped int64) {
	defer c.watchdog.Stop()
	defer c.hurried.Store(true) // the watchdog looks no more
	select {
	case <-c.done:
		return 0
	case <-ctx.Done():
	}
	c.hurried.Store(true)
	if grace.Wait(c.done) {
		return c.dropped
	}
	for !c.abandon() { // it works, on something short
		select {
		case <-c.done:
			return c.dropped
		case <-time.After(time.Millisecond):
		}
	}
	return c.dropped + c.dropRest()
}

// abandon leaves the goroutine alone if it runs code of others.
func (c *correlating) abandon() bool {
	state := c.state.Load()
	if phaseOf(state) == working || !c.state.CompareAndSwap(state, uint64(abandoned)) {
		return false
	}
	if phaseOf(state) != deciding {
		c.inHand = nil // it has its outcome, or the sink
	}
	return true
}

// dropRest settles what an abandoned goroutine has left, and tells whoever waits.
func (c *correlating) dropRest() (weight int64) {
	end := occurrence.Settlement{Outcome: occurrence.Dropped, Reason: occurrence.Shutdown}
	var left []*occurrence.Occurrence
	if c.inHand != nil {
		left = append(left, c.inHand)
	}
	for o, ok := c.subscriber.Receive(); ok; o, ok = c.subscriber.Receive() {
		left = append(left, o)
	}
	for _, o := range left {
		c.ledger.Add(end.Outcome, end.Reason, o.Weight)
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

// watch reports a decision that takes too long. Nobody else can be asked: the
// queue fills, and what does not fit is dropped and counted.
func (c *correlating) watch() {
	state := c.state.Load()
	stalled := phaseOf(state) == deciding && state == c.seen
	c.seen = state
	if stalled && !c.stalled.Swap(true) {
		c.logger.Error(nil, "A key function or the clock of the correlator has not returned; nothing is written until it does", "for", stalledAfter)
	}
	if !stalled {
		c.stalled.Store(false)
	}
	if !c.hurried.Load() {
		c.watchdog.Reset(stalledAfter)
	}
}

// register adds a metric of it.
func (c *correlating) register(r prometheus.Registerer) error {
	return r.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "eventd_correlator_stalled",
		Help: "1 while a key function has not returned for 10 s or more. Nothing is written meanwhile.",
	}, func() float64 {
		if c.stalled.Load() {
			return 1
		}
		return 0
	}))
}
