package remote

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/internal/grace"
	"github.com/eventd/eventd/internal/sleep"
	"github.com/eventd/eventd/pkg/occurrence"
)

// call is a request in flight. It may never return: then it ends without an answer.
type call struct {
	queue *queue
	items []*item
	timer *time.Timer
	ended bool // answered or abandoned; guarded by the mutex of the sink
}

// errAbandoned is of a request that does not return.
var errAbandoned = errors.New("the request did not return")

// schedule has the next batch of a queue sent when it is due. The mutex must be held.
func (s *Sink) schedule(q *queue) {
	if q.timer != nil {
		q.timer.Stop()
		q.timer = nil
	}
	switch {
	case q.call != nil || q.queued:
		return
	case q.isEmpty():
		s.forget(q)
		return
	}
	if wait := time.Until(q.due(s.options.Delay, s.flushing > 0)); wait > 0 {
		q.timer = time.AfterFunc(wait, func() { s.wake(q) })
		return
	}
	q.queued = true
	s.runnable = append(s.runnable, q)
	s.dispatch()
}

// wake is called by the timer of a queue.
func (s *Sink) wake(q *queue) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.schedule(q)
	}
}

// forget removes a queue without items. The mutex must be held.
func (s *Sink) forget(q *queue) {
	if q.timer != nil {
		q.timer.Stop()
		q.timer = nil
	}
	// Its maxItems, which eventd may have lowered, goes with it.
	if s.queues[q.target] == q {
		delete(s.queues, q.target)
	}
}

// dispatch starts requests, as many as may be in flight. The mutex must be held.
func (s *Sink) dispatch() {
	for len(s.runnable) > 0 && s.calls < s.options.Concurrency {
		q := s.runnable[0]
		s.runnable[0] = nil
		s.runnable = s.runnable[1:]
		q.queued = false
		items := q.batch(time.Now(), s.options.MaxBytes)
		if len(items) == 0 {
			s.schedule(q) // they were evicted meanwhile
			continue
		}
		for _, i := range items {
			if i.name == "" {
				i.name = nameOf(i)
			}
		}
		c := &call{queue: q, items: items}
		q.call = c
		s.calls++
		c.timer = time.AfterFunc(s.options.RequestTimeout+grace.Period, func() { s.end(c, nil, errAbandoned) })
		go s.run(c)
	}
}

// run is the goroutine of a call.
func (s *Sink) run(c *call) {
	ctx, cancel := context.WithTimeout(s.requests, s.options.RequestTimeout)
	defer cancel()
	statuses, err := s.post(ctx, c)
	s.end(c, statuses, err)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls--
	s.dispatch()
	s.changes.Notify()
}

// post makes a request. A panic of the client is handled as a lost answer.
func (s *Sink) post(ctx context.Context, c *call) (statuses []metav1.Status, err error) {
	defer func() {
		if p := recover(); p != nil {
			statuses, err = nil, fmt.Errorf("the client panicked: %v", p)
		}
	}()
	body, err := encode(c.queue.target, c.items)
	if err != nil {
		return nil, &UnsentError{err}
	}
	began := time.Now()
	answer, err := s.client.Post(ctx, c.queue.target.api, c.queue.target.namespace, body)
	s.metrics.answered(err, time.Since(began))
	if err != nil {
		return nil, err
	}
	if answer == nil {
		return nil, errors.New("there is no answer")
	}
	return answer.Statuses(len(c.items))
}

// end handles the answer to a call, or that there is none. It has an effect once.
func (s *Sink) end(c *call, statuses []metav1.Status, err error) {
	s.settle(s.ended(c, statuses, err))
}

func (s *Sink) ended(c *call, statuses []metav1.Status, err error) (out []settled) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.ended || s.closed {
		return nil
	}
	c.ended = true
	c.timer.Stop()
	q := c.queue
	q.call = nil
	now := time.Now()
	if err != nil {
		out = s.failed(q, c.items, classify(err), now)
	} else {
		q.failures = 0
		for n, i := range c.items {
			s.metrics.items.WithLabelValues(codeLabel(statuses[n].Code)).Inc()
			if settlement, ok := s.answered(i, &statuses[n], now); ok {
				out = append(out, settled{i, settlement})
			} else {
				q.retrying = append(q.retrying, i)
			}
		}
	}
	for _, o := range out {
		s.remove(q, o.item)
	}
	s.schedule(q)
	return out
}

// failed returns the outcomes of a batch that was not handled. The mutex must be held.
func (s *Sink) failed(q *queue, items []*item, f failure, now time.Time) (out []settled) {
	if f.tooLarge && len(items) > 1 {
		q.maxItems = max(1, len(items)/2)
		q.retrying = append(items, q.retrying...)
		return nil
	}
	q.failures++
	delay := max(s.backoff(q.failures), min(f.retryAfter, s.options.RetryFor))
	q.notBefore = now.Add(delay)
	s.metrics.retries.Inc()
	for _, i := range items {
		i.inDoubt = i.inDoubt || f.inDoubt
		i.err = f.err
		switch age := now.Sub(i.since); {
		case f.tooLarge:
			out = append(out, settled{i, i.settlement(occurrence.Invalid)})
		case f.forbidden && age >= s.options.ForbiddenFor:
			out = append(out, settled{i, i.settlement(occurrence.Forbidden)})
		case age >= s.options.RetryFor:
			out = append(out, settled{i, i.settlement(occurrence.RetriesExhausted)})
		default:
			q.retrying = append(q.retrying, i)
		}
	}
	return out
}

// answered returns the outcome of an item, false if it is sent again. The mutex must be held.
func (s *Sink) answered(i *item, status *metav1.Status, now time.Time) (occurrence.Settlement, bool) {
	o := outcomeOf(status)
	if o.acknowledged {
		return occurrence.Settlement{Outcome: occurrence.Acknowledged}, true
	}
	i.inDoubt = i.inDoubt || o.inDoubt
	i.err = o.err
	if o.refused != occurrence.NoReason {
		return i.settlement(o.refused), true
	}
	if now.Sub(i.since) >= s.options.RetryFor {
		return i.settlement(occurrence.RetriesExhausted), true
	}
	i.failures++
	i.retryAt = now.Add(max(s.backoff(i.failures), min(o.retryAfter, s.options.RetryFor)))
	return occurrence.Settlement{}, false
}

// settlement is that of an item that is not sent again: dropped for a reason, or uncertain.
func (i *item) settlement(reason occurrence.Reason) occurrence.Settlement {
	if i.inDoubt {
		return occurrence.Settlement{Outcome: occurrence.Uncertain, Err: i.err}
	}
	return dropped(reason, i.err)
}

// backoff returns the delay after a number of failures.
func (s *Sink) backoff(failures int) time.Duration {
	return sleep.Backoff(s.options.RetryBaseDelay, s.options.RetryMaxDelay, failures)
}
