package app

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/eventd/eventd/internal/grace"
	"github.com/eventd/eventd/pkg/election"
	"github.com/eventd/eventd/pkg/lifecycle"
)

// handoverPatience is how long a handover waits for the requests that are being
// answered. Most are by then. Others wait for a write that hangs, and are
// answered while another replica leads: counts are right with two writers.
const handoverPatience = 150 * time.Millisecond

// A leader that has handed over owes thousands of writes, perhaps. For these, which
// have waited long, nobody waits; for its successor's first steps everybody does. So
// the drain begins headStart after another leader is known, and at the latest
// drainPatience after the handover: there may be no other replica.
const (
	headStart     = 500 * time.Millisecond
	drainPatience = time.Second
)

// part runs, and knows when it has begun to.
type part interface {
	Run(ctx context.Context) error
	Ready(ctx context.Context) error
}

// passer passes on to the leader what this process does not accept.
type passer interface {
	part
	// AwaitLeader returns when there is another replica to pass on to; an error is
	// that of ctx.
	AwaitLeader(ctx context.Context) error
}

// stream is what runs in the process, from its source to its end, and is stopped
// in this order.
type stream struct {
	ending *ending
	// gate is what only a leader opens, an *intake.Gate, and relay what the others
	// pass on by, an *intake.Relay. Both are nil if there are no others.
	gate  part
	relay passer
	// startServing serves until what it returns is called, which closes the
	// listener at once, and a channel when all requests have been answered.
	startServing func(context.Context) (stop func() <-chan struct{}, err error)
	// drain takes nothing new and writes what was accepted.
	drain func(context.Context) error
	// flush writes what was accepted, and can be called again; nil if a leader that
	// has lost its Lease does not stand by.
	flush func(context.Context)

	serving    chan struct{} // closed when requests are served
	idle       <-chan struct{}
	handedOver atomic.Bool // and not lost the Lease
}

// components are the parts in the order of their start; they stop in the reverse
// order. The source stops first, and then what it has let in is written.
//
// The source of a replica is its gate. When that is closed, the Lease released and
// its successor at work, it drains, and meanwhile passes on to the new leader what it still
// receives; it stops serving last. One that runs alone has nobody to pass
// anything on to, so it stops serving first.
func (s *stream) components() []lifecycle.Component {
	s.serving = make(chan struct{})
	serve := lifecycle.Component{Name: "serving", Run: s.serve, Ready: s.awaitServing}
	write := lifecycle.Component{Name: "pipeline", Run: s.write}
	if s.gate == nil {
		return []lifecycle.Component{write, serve}
	}
	// Ready when this process can show others who it is: whom they would not believe
	// is not elected.
	pass := lifecycle.Component{Name: "passing on", Run: s.relay.Run, Ready: s.relay.Ready}
	accept := lifecycle.Component{Name: "accepting", NeedsLeadership: true, Run: s.accept, Ready: s.gate.Ready}
	if s.flush != nil {
		accept.Drain = s.settleDeferred
	}
	return []lifecycle.Component{serve, write, pass, accept}
}

// accept lets requests in for as long as this process leads.
func (s *stream) accept(ctx context.Context) error {
	err := s.gate.Run(ctx)
	lost := errors.Is(context.Cause(ctx), election.ErrLeaseLost)
	s.handedOver.Store(!lost)
	if lost && s.flush == nil {
		s.ending.begin() // it does not stand by: the grace period counts from here
	}
	return err
}

// settleDeferred has a leader that has lost its Lease write at once what was to
// wait: it has nothing to merge it with any more. At a stop the pipeline does so.
func (s *stream) settleDeferred(ctx context.Context) error {
	select {
	case <-s.ending.begun:
	default:
		s.flush(ctx)
	}
	return nil
}

func (s *stream) serve(ctx context.Context) error {
	stop, err := s.startServing(ctx)
	if err != nil {
		return err
	}
	close(s.serving)
	<-ctx.Done()
	s.ending.begin()
	grace.WaitFor(time.Until(s.ending.delayed()), nil)
	s.idle = stop()
	// Each of these requests has an occurrence that is being written and an
	// answer that its client waits for, or is being passed on, for which the Lease
	// is followed until this returns.
	patience := time.Until(s.ending.over())
	if s.gate == nil {
		// The drain comes after: a write that the apiserver does not take must not
		// keep the others, which only the drain flushes, from their turn.
		patience /= 2
	}
	if !grace.WaitFor(patience, s.idle) {
		klog.FromContext(ctx).Info("Going on while requests are still in flight")
	}
	return nil
}

func (s *stream) awaitServing(ctx context.Context) error {
	select {
	case <-s.serving:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *stream) write(ctx context.Context) error {
	<-ctx.Done()
	s.ending.begin()
	draining, cancel := context.WithDeadline(context.WithoutCancel(ctx), s.ending.drained())
	defer cancel()
	if s.handedOver.Load() {
		s.letSuccessorBegin(draining)
	}
	if err := s.drain(draining); err != nil {
		return fmt.Errorf("shutting down: %w", err)
	}
	klog.FromContext(ctx).Info("Everything that was accepted is settled")
	return nil
}

func (s *stream) letSuccessorBegin(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, min(drainPatience, s.ending.grace/10))
	defer cancel()
	if s.relay.AwaitLeader(ctx) == nil {
		grace.WaitFor(headStart, ctx.Done())
	}
}

// finish waits for the last answers, when all components have ended.
func (s *stream) finish(ctx context.Context) {
	if s.idle != nil && !grace.WaitFor(time.Until(s.ending.over()), s.idle) {
		klog.FromContext(ctx).Info("Requests in flight were not answered before the end of the grace period")
	}
}
