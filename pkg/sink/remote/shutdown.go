package remote

import (
	"context"
	"errors"
	"slices"

	"github.com/eventd/eventd/internal/grace"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink"
)

var errClosed = errors.New("the sink is closed")

// Flush sends everything that is pending without the Delay of the options, and returns when that
// has settled, or when the context ends. Retry delays remain. It returns what is pending.
func (s *Sink) Flush(ctx context.Context) sink.Pending {
	items := s.beginFlush()
	defer s.endFlush()
	_ = s.changes.Await(ctx, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		items = slices.DeleteFunc(items, func(i *item) bool { return i.gone })
		return len(items) == 0
	})
	return s.Pending()
}

// beginFlush has everything sent without Options.Delay until endFlush, and returns what is pending.
func (s *Sink) beginFlush() (items []*item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flushing++
	for _, q := range s.queues {
		if q.call != nil {
			items = append(items, q.call.items...)
		}
		items = append(append(items, q.retrying...), q.forming...)
	}
	for _, q := range s.queues {
		s.schedule(q)
	}
	return items
}

func (s *Sink) endFlush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flushing--
}

// Close sends what is pending until the context ends. What is left then settles as dropped, or
// as uncertain if it was sent. It returns that, at most 500 ms after the end of the context, twice
// grace.Period: it waits for requests, and then for callbacks and requests, that do not return. Their
// goroutines stay until they return. What is added later is dropped. It may be called once.
func (s *Sink) Close(ctx context.Context) sink.Pending {
	if s.Flush(ctx).Series > 0 {
		s.cancel(errClosed)
		s.awaitCalls() // their answers count
	}
	left, out := s.close()
	s.cancel(errClosed)
	s.account(out)
	grace.Run(func() {
		for _, o := range out {
			o.call()
		}
		s.awaitCalls()
	})
	return left
}

// awaitCalls waits until all requests have returned, for at most a grace period.
func (s *Sink) awaitCalls() {
	ctx, cancel := context.WithTimeout(context.Background(), grace.Period)
	defer cancel()
	_ = s.changes.Await(ctx, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.calls == 0
	})
}

// close takes everything that is pending.
func (s *Sink) close() (left sink.Pending, out []settled) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, q := range s.queues {
		if q.call != nil {
			q.call.timer.Stop()
			for _, i := range q.call.items {
				i.inDoubt = true
			}
			q.retrying = append(q.retrying, q.call.items...)
		}
		if q.timer != nil {
			q.timer.Stop()
		}
		for _, i := range append(q.retrying, q.forming...) {
			i.gone = true
			left.Series++
			left.Occurrences += i.weight
			out = append(out, settled{i, i.settlement(occurrence.Shutdown)})
		}
	}
	s.queues, s.runnable, s.items, s.bytes = make(map[target]*queue), nil, 0, 0
	return left, out
}
