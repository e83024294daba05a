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
// now meanwhile. Callbacks may run after Flush has returned.
func (s *Sink) Flush(ctx context.Context) Pending {
	generation := s.beginFlush()
	defer s.endFlush()
	for {
		drained, ok := s.flushed(generation)
		if ok {
			return Pending{}
		}
		select {
		case <-drained:
		case <-ctx.Done():
			return s.Pending()
		}
	}
}

// flushed reports whether a generation is over, and otherwise returns what to wait for.
func (s *Sink) flushed(generation uint64) (drained <-chan struct{}, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.generations.isOver(generation) {
		return nil, true
	}
	if s.drained == nil {
		s.drained = make(chan struct{})
	}
	return s.drained, false
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
// requests and goroutines, and settles the rest as dropped or uncertain. It returns what it
// could not write. A further call waits for the end of the first or of its own context, and
// returns nothing.
//
// Requests, callbacks and loggers that do not return within grace.Period of the end of the
// context are abandoned. Their occurrences are settled, and only their goroutines stay until
// they return. So Close ends at most two of these periods after the context.
func (s *Sink) Close(ctx context.Context) Pending {
	s.mu.Lock()
	first := !s.closed
	s.closed = true
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

	left := s.Pending()
	var out []counter.Settled
	s.mu.Lock()
	for _, p := range s.pending {
		given := p.counter.Drop(s.sequence, occurrence.Shutdown, nil)
		s.release(p)
		out = append(out, given...)
	}
	s.pending, s.idle = nil, nil // the caller may keep the sink
	s.mu.Unlock()
	if s.count(out); isAwaited(out) {
		grace.Run(func() { runCallbacks(out) })
	}
	return left
}

func (s *Sink) stopWorkers(cause error) {
	s.mu.Lock()
	s.stopped = true
	s.alarm.Stop()
	s.ready.Broadcast()
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
