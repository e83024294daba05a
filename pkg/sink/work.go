package sink

import (
	"context"
	"time"

	"github.com/eventd/eventd/pkg/sink/internal/apiclient"
)

// worker is one of the sink's goroutines. The mutex guards what others look at:
// all but the request while it makes no call.
type worker struct {
	*Sink
	ctx context.Context
	// series is the one in work, and request what was asked for it and is not
	// answered, which began at a time.
	series  *series
	request *request
	began   time.Time
	// inCall: it runs code of others, which may never return. If that is a
	// request, requested is the account that it is for.
	inCall    bool
	requested *account
	// abandoned: that has taken too long, and nobody waits for it. It has no
	// series any more, and touches nothing.
	abandoned bool
}

// startWorker starts a worker.
func (s *Sink) startWorker(ctx context.Context) {
	w := &worker{Sink: s, ctx: ctx}
	s.mu.Lock()
	w.add()
	s.mu.Unlock()
	go w.work(nil)
}

// add and remove say for which workers Close waits. The mutex must be held.
func (w *worker) add() { w.workers[w] = struct{}{} }

func (w *worker) remove() {
	delete(w.workers, w)
	if w.stopped && len(w.workers) == 0 {
		close(w.noWorkers)
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
		defer w.startWorker(w.ctx) // also if what is told now ends the goroutine again
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
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.abandoned {
		w.remove()
	}
}

// take waits for a series to work on, until there may be a request for it, and
// plans that only then. It returns false when the sink stops, or the worker was
// abandoned.
func (w *worker) take() (first move, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for !w.stopped && !w.abandoned {
		now := time.Now()
		j := w.scheduler.Dequeue(now)
		if j != nil {
			w.series = j.Value.(*series)
			w.updateEvictable(w.series)
			if first = w.next(w.series, now); first.request != nil {
				w.scheduler.RequestSent(now)
			}
		}
		w.wakeWorkers(now)
		if j != nil {
			return first, true
		}
		w.ready.Wait()
	}
	return move{}, false
}

// giveBack returns the series to the schedule. What was asked for it and has no
// answer may have taken effect.
func (w *worker) giveBack() { w.tell(w.endTurn()) }

func (w *worker) endTurn() (out []settled) {
	w.mu.Lock()
	defer w.mu.Unlock()
	owed := w.series
	if owed == nil {
		return nil
	}
	if w.request != nil {
		lost := apiclient.Answer{Class: apiclient.ClassLost, Err: apiclient.ErrNoAnswer}
		owed.apply(w.request, lost, time.Time{})
		out = w.wait(owed, lost)
	}
	w.series, w.request = nil, nil
	now := time.Now()
	var at time.Time
	if !owed.over {
		at = owed.ready()
		w.setDeferred(owed, owed.deadlines.first().After(now))
	}
	w.scheduler.Done(&owed.job, at, now)
	w.updateEvictable(owed)
	w.wakeWorkers(now)
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
