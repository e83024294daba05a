package sink

import (
	"context"
	"time"
)

// work is one of the sink's goroutines.
func (s *Sink) work(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.stopped {
		now := time.Now()
		j := s.schedule.take(now)
		s.wakeWorkers(now)
		if j == nil {
			s.ready.Wait()
			continue
		}
		s.mu.Unlock()
		s.reconcile(ctx, j.series)
		s.mu.Lock()
		s.finish(j.series)
	}
}

// finish takes a series back from a worker. The mutex must be held.
func (s *Sink) finish(owed *series) {
	now := time.Now()
	var at time.Time
	if !owed.over {
		at = owed.ready()
		s.setDeferred(owed, owed.dues.first().After(now))
	}
	s.schedule.done(&owed.job, at, now)
	s.wakeWorkers(now)
}

// wakeWorkers has a worker look whether there is something for it, now and when
// there may be next. The mutex must be held.
func (s *Sink) wakeWorkers(now time.Time) {
	if s.schedule.hasReady(now) {
		s.ready.Signal() // who takes one and leaves another wakes the next
	}
	if next := s.schedule.next(now); !next.IsZero() && (s.alarmAt.IsZero() || next.Before(s.alarmAt)) {
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
	now := time.Now()
	s.schedule.advance(now)
	s.wakeWorkers(now)
}
