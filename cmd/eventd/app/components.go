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

// handoverTimeout is how long a handover waits for requests in flight. Most are
// answered by then. The others wait for a hanging write, and are answered while
// another replica leads: counts are exact with two writers.
const handoverTimeout = 150 * time.Millisecond

// A leader that has handed over may have thousands of pending writes. They can wait,
// while all clients wait for the successor to start. So the drain begins
// successorTime after another leader is known, and drainDelay after the handover at
// the latest, because there may be no other replica.
const (
	successorTime = 500 * time.Millisecond
	drainDelay    = time.Second
)

// runner is a part that runs, such as *relay.Gate.
type runner interface {
	Run(ctx context.Context) error
	Ready(ctx context.Context) error
}

// forwarder forwards requests to the leader. *relay.Relay is one.
type forwarder interface {
	runner
	// AwaitLeader returns nil when another replica leads, or an error when ctx ends.
	AwaitLeader(ctx context.Context) error
}

// followerTimeout is how long a handover waits until another replica holds what is
// pending. Clients wait for it.
const followerTimeout = time.Second

// replicator replicates what is pending. *replication is one.
type replicator interface {
	Replicate(ctx context.Context) error
	SetLeading(leading bool)
	AwaitFollower(ctx context.Context) error
}

// stream is the parts of the process, from the source to the end of the pipeline.
type stream struct {
	shutdown *shutdown
	// relay forwards requests to the leader, and report tells it how this replica is until ctx ends, and once more
	// then. beginTerm is called when this replica begins to lead. All are nil in a process that runs alone.
	relay     forwarder
	report    func(ctx context.Context)
	beginTerm func()
	// gate accepts reports on the leader, and replication has others hold them. Both are nil in a process that runs
	// alone, or takes no reports.
	gate        runner
	replication replicator
	// startServing serves until stop is called. stop closes the listener and returns a
	// channel that is closed when all requests are answered.
	startServing func(context.Context) (stop func() <-chan struct{}, err error)
	// drain accepts nothing more and writes what is pending.
	drain func(context.Context) error
	// flush writes what is pending, and can be called again. It is nil if a leader that
	// has lost its Lease exits.
	flush func(context.Context)

	serving    chan struct{} // closed when requests are served
	idle       <-chan struct{}
	handedOver atomic.Bool // the Lease was released, not lost
}

// components returns the parts in the order of their start. They stop in reverse
// order: the source first, and then what it has accepted is written.
//
// The source of a replica is its gate. It closes, the Lease is released, the
// pipeline drains, and requests are forwarded to the new leader meanwhile. The
// listener closes last. A process that runs alone cannot forward, so its listener
// closes first.
func (s *stream) components() []lifecycle.Component {
	s.serving = make(chan struct{})
	serve := lifecycle.Component{Name: "serving", Run: s.serve, Ready: s.waitServing}
	write := lifecycle.Component{Name: "pipeline", Run: s.write}
	if s.relay == nil {
		return []lifecycle.Component{write, serve}
	}
	// The relay is ready when other replicas can authenticate this one. A replica that
	// they reject must not be elected.
	forward := lifecycle.Component{Name: "forwarding", Run: s.relay.Run, Ready: s.relay.Ready}
	report := lifecycle.Component{Name: "reporting", Run: func(ctx context.Context) error { s.report(ctx); return nil }}
	if s.gate == nil {
		lead := lifecycle.Component{Name: "leading", NeedsLeadership: true, Run: s.lead}
		return []lifecycle.Component{serve, report, write, forward, lead}
	}
	accept := lifecycle.Component{Name: "accepting", NeedsLeadership: true, Run: s.accept, Ready: s.gate.Ready}
	if s.flush != nil {
		accept.Drain = s.flushDeferred
	}
	// Sessions last until everything is written: this replica follows the next leader, and
	// others follow this one.
	replicate := lifecycle.Component{Name: "replication", Run: s.replication.Replicate}
	return []lifecycle.Component{serve, report, replicate, write, forward, accept}
}

// lead is accept without reports.
func (s *stream) lead(ctx context.Context) error {
	s.beginTerm()
	<-ctx.Done()
	return nil
}

// accept opens the gate while this process leads.
func (s *stream) accept(ctx context.Context) error {
	s.beginTerm()
	s.replication.SetLeading(true)
	defer s.replication.SetLeading(false)
	err := s.gate.Run(ctx)
	lost := errors.Is(context.Cause(ctx), election.ErrLeaseLost)
	s.handedOver.Store(!lost)
	if lost && s.flush == nil {
		s.shutdown.begin() // the process exits: its grace period begins now
	}
	if !lost {
		s.awaitFollower(ctx)
	}
	return err
}

// awaitFollower waits until another replica holds what is pending: if this process is killed
// before it is written, the next leader writes it.
func (s *stream) awaitFollower(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(followerTimeout, s.shutdown.grace/10))
	defer cancel()
	if err := s.replication.AwaitFollower(ctx); err != nil {
		klog.FromContext(ctx).Info("Handing over before another replica holds what is pending", "err", err)
	}
}

// flushDeferred writes deferred occurrences after a lost Lease: no further
// occurrences can be merged with them. At a shutdown, the pipeline does so.
func (s *stream) flushDeferred(ctx context.Context) error {
	select {
	case <-s.shutdown.begun:
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
	s.shutdown.begin()
	grace.WaitFor(time.Until(s.shutdown.serveUntil()), nil)
	s.idle = stop()
	// A request in flight waits for a write, or is being forwarded: the Lease is
	// followed until serve returns.
	timeout := time.Until(s.shutdown.deadline())
	if s.relay == nil {
		// The drain comes after. It needs time for other occurrences, even if the
		// apiserver does not answer the write of one request.
		timeout /= 2
	}
	if !grace.WaitFor(timeout, s.idle) {
		klog.FromContext(ctx).Info("Continuing the shutdown while requests are in flight")
	}
	return nil
}

func (s *stream) waitServing(ctx context.Context) error {
	select {
	case <-s.serving:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *stream) write(ctx context.Context) error {
	<-ctx.Done()
	s.shutdown.begin()
	draining, cancel := context.WithDeadline(context.WithoutCancel(ctx), s.shutdown.drainUntil())
	defer cancel()
	if s.handedOver.Load() {
		s.waitForSuccessor(draining)
	}
	if err := s.drain(draining); err != nil {
		return fmt.Errorf("shutting down: %w", err)
	}
	klog.FromContext(ctx).Info("All accepted occurrences are settled")
	return nil
}

func (s *stream) waitForSuccessor(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, min(drainDelay, s.shutdown.grace/10))
	defer cancel()
	if s.relay.AwaitLeader(ctx) == nil {
		grace.WaitFor(successorTime, ctx.Done())
	}
}

// finish waits for the last answers after all components have ended.
func (s *stream) finish(ctx context.Context) {
	if s.idle != nil && !grace.WaitFor(time.Until(s.shutdown.deadline()), s.idle) {
		klog.FromContext(ctx).Info("Requests in flight were not answered before the end of the grace period")
	}
}
