package app

import (
	"context"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

// answerTime is what is kept of the grace period for the requests whose
// occurrences were settled by the end of the drain: they are to be answered
// before the process goes. It is at most a tenth of the grace period.
const answerTime = time.Second

// ending is the end of the process: when it has begun, and what has to be done
// by when.
type ending struct {
	grace, delay time.Duration
	life         context.Context // of the process, until it is told to end

	once  sync.Once
	begun chan struct{} // closed when it has
	at    time.Time     // to be read after begun
}

// newEnding returns one that begins with the end of life, or before if somebody
// knows that something else has ended it.
func newEnding(life context.Context, grace, delay time.Duration) *ending {
	e := &ending{grace: grace, delay: delay, life: life, begun: make(chan struct{})}
	context.AfterFunc(life, e.begin)
	return e
}

func (e *ending) begin() {
	e.once.Do(func() {
		e.at = time.Now()
		close(e.begun)
		reason := "a part of it has ended"
		if e.life.Err() != nil {
			reason = context.Cause(e.life).Error()
		}
		klog.FromContext(e.life).Info("Shutting down", "reason", reason, "gracePeriod", e.grace)
	})
}

// delayed is until when the process goes on serving, so that nobody is sent to it
// any more once it does not.
func (e *ending) delayed() time.Time { return e.at.Add(e.delay) }

// drained is when there is no more time to write what was accepted.
func (e *ending) drained() time.Time { return e.over().Add(-min(answerTime, e.grace/10)) }

// over is when the process is to be gone.
func (e *ending) over() time.Time { return e.at.Add(e.grace) }
