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
	// series is the one in work, and request what was asked for it and is not
	// answered, which began at a time.
	series  *series
	request *request
	began   time.Time
	// inCall: it runs code of others, which may never return. If that is a
	// request, requested is the account that it is for.
	inCall    bool
	requested *counter.Counter
	// abandoned: that has taken too long, and nobody waits for it. It has no
	// series any more, and touches nothing.
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

// add and remove say for which workers Close waits. The mutex must be held.
func (w *worker) add() { w.sink.workers[w] = struct{}{} }

func (w *worker) remove() {
	delete(w.sink.workers, w)
	if w.sink.stopped && len(w.sink.workers) == 0 {
		close(w.sink.noWorkers)
	}
}

// work ends when the sink stops, or the worker is abandoned. It begins with what
// it is given, if it is not nil. If somebody's client or callback ends the
// goroutine, as runtime.Goexit does, another worker takes its place.
func (w *worker) work(begin func()) {
	stopped := false
	defer func() {
		if stopped {
			return
		}
		if p := recover(); p != nil {
			panic(p) // which may have left anything in any state
		}
		if !w.endCall() {
			return
		}
		defer w.end()
		defer w.sink.startWorker(w.ctx) // also if what is told now ends the goroutine again
		w.giveBack()
	}()
	if begin != nil {
		begin()
		w.giveBack()
	}
	for first, ok := w.take(); ok; first, ok = w.take() {
		w.reconcile(first)
		w.giveBack()
	}
	stopped = true
	w.end()
}

// end takes the worker from those that Close waits for.
func (w *worker) end() {
	w.sink.mu.Lock()
	defer w.sink.mu.Unlock()
	if !w.abandoned {
		w.remove()
	}
}

// take waits for a series to work on, until there may be a request for it, and drafts that
// only then. It returns false when the sink stops, or the worker was abandoned.
func (w *worker) take() (first move, ok bool) {
	s := w.sink
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.stopped && !w.abandoned {
		now := time.Now()
		j := s.scheduler.Dequeue(now)
		if j != nil {
			w.series = j.Value.(*series)
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
	return move{}, false
}

// giveBack returns the series to the schedule. What was asked for it and has no
// answer may have taken effect.
func (w *worker) giveBack() { w.tell(w.endTurn()) }

func (w *worker) endTurn() (out []counter.Settled) {
	w.sink.mu.Lock()
	defer w.sink.mu.Unlock()
	owed := w.series
	if owed == nil {
		return nil
	}
	if w.request != nil {
		lost := apiclient.Answer{Class: apiclient.ClassLost, Err: apiclient.ErrNoAnswer}
		owed.apply(w.request, lost, time.Time{})
		out = w.sink.wait(owed, lost)
	}
	w.series, w.request = nil, nil
	now := time.Now()
	var at time.Time
	if !owed.over {
		at = owed.ready()
		w.sink.setDeferred(owed, owed.deadlines.first().After(now))
	}
	w.sink.scheduler.Done(&owed.job, at, now)
	w.sink.updateEvictable(owed)
	w.sink.wakeWorkers(now)
	return out
}

// wakeWorkers has a worker look whether there is something for it, now and when
// there may be next. The mutex must be held.
func (s *Sink) wakeWorkers(now time.Time) {
	ready, next := s.scheduler.Next(now)
	if ready {
		s.ready.Signal() // who takes one and leaves another wakes the next
	}
	if !next.IsZero() && (s.alarmAt.IsZero() || next.Before(s.alarmAt)) {
		s.alarmAt = next
		s.alarm.Reset(next.Sub(now))
	}
}

// ring is called when there may be something to take.
func (s *Sink) ring() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return
	}
	s.alarmAt = time.Time{}
	s.wakeWorkers(time.Now())
}
