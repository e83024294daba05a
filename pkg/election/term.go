package election

import (
	"context"
	"errors"
	"sync"
	"time"
)

// ErrLeaseLost is the cause of the end of a leader's context if the Lease was not
// renewed in time, or has another holder. Run returns it with the option Exit.
var ErrLeaseLost = errors.New("the leader election lease is lost")

// errStepDown is the cause of the end of a term that was not lost.
var errStepDown = errors.New("the leader has stepped down")

// term is one term of a leader, from the acquisition to the loss or the planned end.
// A term that has ended stays so: a renewal that comes too late does not extend it,
// because another process may lead.
type term struct {
	context  context.Context
	cancel   context.CancelCauseFunc
	validity time.Duration // of a renewal

	mu      sync.Mutex
	clock   clock
	renewed moment
	cause   error         // nil until the term has ended
	endedAt moment        // when that was noticed
	ended   chan struct{} // closed when the term has ended
	timer   *time.Timer   // ends the term at its deadline
}

// newTerm begins a term with an acquisition that began at acquired. Its context also
// ends with its parent.
func newTerm(parent context.Context, acquired moment, validity time.Duration) *term {
	t := &term{validity: validity, renewed: acquired, ended: make(chan struct{})}
	t.context, t.cancel = context.WithCancelCause(parent)
	t.mu.Lock() // the timer may fire at once
	defer t.mu.Unlock()
	t.timer = time.AfterFunc(t.untilDeadline(), t.expire)
	return t
}

// expire ends a term that is past its deadline. Two clocks are read one after the
// other, so the timer may be early. Then it is set again.
func (t *term) expire() {
	if !t.leading() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cause == nil {
		t.timer.Reset(t.untilDeadline())
	}
}

// leading compares the clock with the deadline, and ends a term that is past it.
func (t *term) leading() bool {
	if t.remaining() > 0 {
		return true
	}
	t.end(ErrLeaseLost)
	return false
}

// remaining returns the time until the deadline: negative after it, 0 if the term
// has ended.
func (t *term) remaining() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cause != nil {
		return 0
	}
	return t.untilDeadline()
}

// overdue returns the time since the deadline, or since the term ended before it. It
// is negative until then.
func (t *term) overdue() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	late := -t.untilDeadline()
	if t.cause != nil {
		late = max(late, t.clock.since(t.endedAt))
	}
	return late
}

func (t *term) untilDeadline() time.Duration { return t.validity - t.clock.since(t.renewed) }

// extend records an acknowledged renewal that began at start. It returns false if
// the term had ended before.
func (t *term) extend(start moment) bool {
	if !t.leading() {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	// The deadline may have passed since leading was called.
	if t.cause != nil || t.untilDeadline() <= 0 {
		return false
	}
	t.renewed = start
	t.timer.Reset(t.untilDeadline())
	return true
}

// end ends the term. It returns the first cause.
func (t *term) end(cause error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cause == nil {
		t.cause, t.endedAt = cause, now()
		t.timer.Stop()
		close(t.ended)
		t.cancel(cause)
	}
	return t.cause
}

// termContext is the context of the leader's work. Done, Err and Lost compare the clock
// with the deadline, so they are right even if no timer could fire. A derived
// context ends when the timer fires, or one of them is called.
type termContext struct {
	context.Context
	term *term
}

func (c termContext) Done() <-chan struct{} {
	c.term.leading()
	return c.Context.Done()
}

func (c termContext) Err() error {
	c.term.leading()
	return c.Context.Err()
}

func (c termContext) Value(key any) any {
	if key == (lostKey{}) {
		c.term.leading()
		return c.term.ended
	}
	return c.Context.Value(key)
}

type lostKey struct{}

// Lost returns a channel that is closed when the Lease is lost, for the context that
// Run passes to lead and for contexts derived from it. Work that finishes after its
// context was cancelled learns of a lost Lease by it. For any other context it
// returns nil.
func Lost(ctx context.Context) <-chan struct{} {
	ended, _ := ctx.Value(lostKey{}).(chan struct{})
	return ended
}

// IsLost reports whether the Lease is lost at this instant, by the clock, for the
// context that Run passes to lead and for contexts derived from it, which end a moment
// later: when their goroutines run again. For any other context it returns false.
func IsLost(ctx context.Context) bool {
	select {
	case <-Lost(ctx):
		return true
	default:
		return false
	}
}
