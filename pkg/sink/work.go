package sink

import (
	"context"
	"time"

	"github.com/eventd/eventd/pkg/sink/internal/apiclient"
	"github.com/eventd/eventd/pkg/sink/internal/counter"
)

// worker is one of the sink's goroutines. The sink's mutex guards its fields, except for
// series and request while inCall is not set: nobody else reads them then.
type worker struct {
	sink *Sink
	ctx  context.Context
	// series is the one in work. request is its request without an answer, and began when
	// that was sent.
	series  *pendingSeries
	request *request
	began   time.Time
	// inCall: it runs external code, which may never return. If that is a request,
	// requested is the counter of its series.
	inCall    bool
	requested *counter.Counter
	// abandoned: the external code has taken too long. The worker has no series any more,
	// and ends when the code returns.
	abandoned bool
}

// startWorker starts a worker.
func (s *Sink) startWorker(ctx context.Context) {
	w := &worker{sink: s, ctx: ctx}
	s.mu.Lock()
	w.add()
	s.mu.Unlock()
	go w.work(nil)
}

// add and remove maintain the workers that Close waits for. The mutex must be held.
func (w *worker) add() { w.sink.workers[w] = struct{}{} }

func (w *worker) remove() {
	delete(w.sink.workers, w)
	if w.sink.stopped && len(w.sink.workers) == 0 {
		close(w.sink.noWorkers)
	}
}

// work runs begin, if it is not nil, and then writes series until the sink stops or the
// worker is abandoned. If a client or callback ends the goroutine, as runtime.Goexit does,
// another worker replaces it.
func (w *worker) work(begin func()) {
	stopped := false
	defer func() {
		if stopped {
			return
		}
		if p := recover(); p != nil {
			panic(p) // the state may be inconsistent
		}
		if !w.endCall() {
			return
		}
		defer w.end()
		defer w.sink.startWorker(w.ctx) // also if a callback ends the goroutine again
		w.requeue()
	}()
	if begin != nil {
		begin()
		w.requeue()
	}
	for first, ok := w.dequeue(); ok; first, ok = w.dequeue() {
		w.reconcile(first)
		w.requeue()
	}
	stopped = true
	w.end()
}

// end removes the worker, unless that was done when it was abandoned.
func (w *worker) end() {
	w.sink.mu.Lock()
	defer w.sink.mu.Unlock()
	if !w.abandoned {
		w.remove()
	}
}

// dequeue waits for a series to write, until a request may be sent, and begins to plan it
// only then. It returns false when the sink stops or the worker was abandoned.
func (w *worker) dequeue() (first action, ok bool) {
	s := w.sink
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.stopped && !w.abandoned {
		now := time.Now()
		j := s.scheduler.Dequeue(now)
		if j != nil {
			w.series = j.Value.(*pendingSeries)
			s.updateEvictable(w.series)
			if first = s.next(w.series, now); first.draft != nil {
				s.scheduler.RequestSent(now)
			}
		}
		s.wakeWorkers(now)
		if j != nil {
			return first, true
		}
		s.ready.Wait()
	}
	return action{}, false
}

// requeue returns the series to the scheduler. A request without an answer may have taken
// effect.
func (w *worker) requeue() { w.report(w.finish()) }

func (w *worker) finish() (out []counter.Settled) {
	w.sink.mu.Lock()
	defer w.sink.mu.Unlock()
	p := w.series
	if p == nil {
		return nil
	}
	if w.request != nil {
		lost := apiclient.Answer{Class: apiclient.ClassLost, Err: apiclient.ErrNoAnswer}
		p.apply(w.request, lost, time.Time{})
		out = w.sink.scheduleRetry(p, lost)
	}
	w.series, w.request = nil, nil
	if p.adopted != nil && p.adopted.dropped && !p.over {
		out = append(out, w.sink.handOverAdopted(p)...)
	}
	now := time.Now()
	var at time.Time
	if !p.over {
		at = p.ready()
		w.sink.setDeferred(p, p.deadlines.first().After(now))
	}
	w.sink.scheduler.Done(&p.job, at, now)
	w.sink.updateEvictable(p)
	w.sink.wakeWorkers(now)
	return out
}

// wakeWorkers wakes a worker if there is a job for it, and sets the alarm for the next one.
// The mutex must be held.
func (s *Sink) wakeWorkers(now time.Time) {
	ready, next := s.scheduler.Next(now)
	if ready {
		s.ready.Signal() // it wakes the next one if there is another job
	}
	if !next.IsZero() && (s.alarmAt.IsZero() || next.Before(s.alarmAt)) {
		s.alarmAt = next
		s.alarm.Reset(next.Sub(now))
	}
}

// onAlarm is called when there may be a job.
func (s *Sink) onAlarm() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return
	}
	s.alarmAt = time.Time{}
	s.wakeWorkers(time.Now())
}
