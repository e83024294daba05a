package sink

import (
	"context"
	"time"

	"github.com/eventd/eventd/pkg/sink/internal/apiclient"
	"github.com/eventd/eventd/pkg/sink/internal/counter"
)

// worker is a goroutine that writes series while there are any to write, and then ends. The
// sink's mutex guards its fields, except for series and request while inCall is not set:
// nobody else reads them then.
type worker struct {
	sink *Sink
	ctx  context.Context
	// series is the one in work. request is its request without an answer, and began when
	// that was sent.
	series  *pendingSeries
	request *request
	began   time.Time
	late    *time.Timer // calls onLate
	// inCall: it runs external code, which may never return. If that is a request,
	// requested is the counter of its series.
	inCall    bool
	requested *counter.Counter
	// abandoned: the external code has taken too long. The worker has no series any more,
	// and ends when the code returns.
	abandoned bool
}

// startWorker starts a worker for a job that is ready, if there may be one more. A worker that
// has not dequeued yet starts the next one when it has. The mutex must be held.
func (s *Sink) startWorker() {
	if s.starting != nil || len(s.workers) >= s.options.Concurrency+s.scheduler.Lent() {
		return
	}
	w := &worker{sink: s, ctx: s.ctx}
	w.add()
	s.starting = w
	go w.work(nil)
}

// add and remove maintain the workers that Close waits for. The mutex must be held.
func (w *worker) add() { w.sink.workers[w] = struct{}{} }

func (w *worker) remove() {
	delete(w.sink.workers, w)
	w.sink.endIfStopped()
}

// endIfStopped reports the end of the last worker after the stop. The mutex must be held.
func (s *Sink) endIfStopped() {
	if s.stopped && len(s.workers) == 0 {
		close(s.noWorkers)
	}
}

// work runs begin, if it is not nil, and then writes series until there is none to write, the
// sink stops or the worker is abandoned. If a client or callback ends the goroutine, as
// runtime.Goexit does, another worker replaces it.
func (w *worker) work(begin func()) {
	ended := false
	defer func() {
		if ended {
			return
		}
		if p := recover(); p != nil {
			panic(p) // the state may be inconsistent
		}
		if !w.endCall() {
			return
		}
		defer w.end() // also if a callback ends the goroutine again
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
	ended = true
}

// end removes the worker, unless that was done when it was abandoned. Another one starts if there
// is a job.
func (w *worker) end() {
	w.sink.mu.Lock()
	defer w.sink.mu.Unlock()
	if !w.abandoned {
		w.remove()
		w.sink.wakeWorkers(time.Now())
	}
}

// dequeue returns a series to write, and begins to plan it. If there is none now, or the sink
// stops, it removes the worker and returns false: in one critical section, since the next job
// starts a worker only if there are fewer than Concurrency and the lent slots together.
func (w *worker) dequeue() (first action, ok bool) {
	s := w.sink
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.starting == w {
		s.starting = nil
	}
	if w.abandoned {
		return action{}, false
	}
	now := time.Now()
	if !s.stopped {
		if j := s.scheduler.Dequeue(now); j != nil {
			w.series = j.Value.(*pendingSeries)
			s.updateEvictable(w.series)
			if first = s.next(w.series, now); first.draft != nil {
				s.scheduler.RequestSent(now)
			}
			ok = true
		}
	}
	if !ok {
		w.remove()
	}
	s.wakeWorkers(now)
	return first, ok
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

// wakeWorkers starts a worker if there is a job for it, and sets the alarm for the next one.
// The mutex must be held.
func (s *Sink) wakeWorkers(now time.Time) {
	if s.stopped {
		return
	}
	ready, next := s.scheduler.Next(now)
	if ready {
		s.startWorker()
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
	s.alarmAt = time.Time{}
	s.wakeWorkers(time.Now())
}
