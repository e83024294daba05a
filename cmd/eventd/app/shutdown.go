package app

import (
	"context"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

// answerTime is the part of the grace period after the drain. In it, requests are
// answered whose occurrences the drain has settled. It is at most a tenth of the
// grace period.
const answerTime = time.Second

// shutdown is the shutdown of the process: when it began, and its deadlines.
type shutdown struct {
	grace, delay time.Duration
	life         context.Context // ends with the signal

	once  sync.Once
	begun chan struct{} // closed when it has begun
	at    time.Time     // valid after begun is closed
}

// newShutdown returns a shutdown that begins when life ends, or when begin is called.
func newShutdown(life context.Context, grace, delay time.Duration) *shutdown {
	s := &shutdown{grace: grace, delay: delay, life: life, begun: make(chan struct{})}
	context.AfterFunc(life, s.begin)
	return s
}

func (s *shutdown) begin() {
	s.once.Do(func() {
		s.at = time.Now()
		close(s.begun)
		reason := "a component has ended"
		if s.life.Err() != nil {
			reason = context.Cause(s.life).Error()
		}
		klog.FromContext(s.life).Info("Shutting down", "reason", reason, "gracePeriod", s.grace)
	})
}

// serveUntil returns the end of the shutdown delay. The process serves until then,
// because clients may still be directed to it.
func (s *shutdown) serveUntil() time.Time { return s.at.Add(s.delay) }

// drainUntil returns the deadline of the drain.
func (s *shutdown) drainUntil() time.Time { return s.deadline().Add(-min(answerTime, s.grace/10)) }

// deadline returns the end of the grace period.
func (s *shutdown) deadline() time.Time { return s.at.Add(s.grace) }
