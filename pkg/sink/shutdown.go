package sink

import (
	"context"
	"time"

	"github.com/eventd/eventd/internal/grace"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/counter"
)

// Flush waits until everything that was added before has settled, or until the context ends.
// It returns what is pending then, which stays pending. Deadlines in the future are moved to
// now meanwhile, unless the context has ended before. Callbacks may run after Flush has returned.
func (s *Sink) Flush(ctx context.Context) Pending {
	if ctx.Err() != nil {
		return s.Pending()
	}
	generation := s.beginFlush()
	defer s.endFlush()
	over := func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.generations.isOver(generation)
	}
	if s.drained.Await(ctx, over) != nil {
		return s.Pending()
	}
	return Pending{}
}

func (s *Sink) beginFlush() (generation uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flushing++
	now := time.Now()
	for _, p := range s.pending {
		p.deadlines.bringForward(now)
		s.reschedule(p, now)
	}
	return s.generations.end()
}

func (s *Sink) endFlush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flushing--
}

// Close refuses new occurrences, writes what is pending until the context ends, ends all
// requests and goroutines, and settles the rest: as handed over if a follower holds it, otherwise
// as dropped or uncertain. It returns what was dropped or is uncertain. Then it ends the sessions,
// after a further 250 ms (grace.Period) if a follower does not acknowledge everything. A further call
// waits for the end of the first or of its own context, and returns nothing.
//
// Requests, callbacks and loggers that do not return within grace.Period of the end of the
// context are abandoned. Their occurrences are settled, and only their goroutines stay until
// they return. So Close ends at most three of these periods after the context.
func (s *Sink) Close(ctx context.Context) Pending {
	s.mu.Lock()
	first := !s.closed
	s.closed = true
	if s.journal != nil {
		s.journal.SendNow() // what followers hold is not dropped
	}
	s.mu.Unlock()
	if !first {
		select {
		case <-s.ended:
		case <-ctx.Done():
		}
		return Pending{}
	}
	defer close(s.ended)
	s.Flush(ctx)
	s.stopWorkers(context.Cause(ctx))

	left, out, calls := s.settleAll()
	if s.count(out); isAwaited(out) || len(calls) > 0 {
		grace.Run(func() {
			defer runCallbacks(out)
			runAll(calls)
		})
	}
	s.endSessions()
	return left
}

// settleAll settles everything: what others hold as handed over, and the rest as dropped or
// uncertain. It returns what was dropped, all that has settled, and the callbacks of what followers
// hold.
func (s *Sink) settleAll() (left Pending, out []counter.Settled, calls []func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	left.Occurrences = s.total.occurrences
	var held uint64 // up to this sequence
	if s.journal != nil {
		calls, held = s.acceptHeld(), s.journal.State().Sequence
	}
	for _, p := range s.pending {
		var handedOver []counter.Settled
		switch {
		case p.adopted != nil:
			handedOver = s.handOverAdopted(p)
		case held > 0:
			handedOver = p.counter.HandOver(held)
		}
		for i := range handedOver {
			left.Occurrences -= handedOver[i].Weight
		}
		out = append(out, handedOver...)
		if p.over {
			continue
		}
		if dropped := p.counter.Drop(s.sequence, occurrence.Shutdown, nil); len(dropped) > 0 {
			left.Series++
			out = append(out, dropped...)
		}
		s.release(p)
	}
	s.pending, s.idle = nil, nil // the caller may keep the sink
	return left, out, calls
}

func (s *Sink) stopWorkers(cause error) {
	s.mu.Lock()
	s.stopped = true
	s.alarm.Stop()
	s.endIfStopped()
	s.mu.Unlock()
	s.stop(cause)
	if grace.Wait(s.noWorkers) {
		return
	}
	s.mu.Lock()
	s.abandonAll()
	s.mu.Unlock()
	<-s.noWorkers // the others run no external code, and end
}
