package election

import (
	"context"
	"errors"
	"sync"
	"time"
)

// ErrLeaseLost is the cause of the end of a leader's context when the Lease was
// not renewed in time, or is another's. With the option Exit it is what Run
// returns.
var ErrLeaseLost = errors.New("the leader election lease is lost")

// errGivenUp is the end of a term that was not lost.
var errGivenUp = errors.New("the leader election lease is given up")

// term is one time of being the leader, from the acquisition to the loss or the
// planned end. Once it is over it stays so: a renewal that comes too late does
// not revive it, since another may lead by then.
type term struct {
	context  context.Context
	cancel   context.CancelCauseFunc
	validity time.Duration // of a renewal

	mu      sync.Mutex
	renewed moment
	over    error
	overAt  moment        // when it was noticed
	ended   chan struct{} // closed when it is over
	alarm   *time.Timer   // tells those who do not ask
}

// newTerm begins a term with an acquisition that began at the given moment. Its
// context is over when the parent's is, too.
func newTerm(parent context.Context, acquired moment, validity time.Duration) *term {
	t := &term{validity: validity, renewed: acquired, ended: make(chan struct{})}
	t.context, t.cancel = context.WithCancelCause(parent)
	t.mu.Lock() // the alarm may ring at once
	defer t.mu.Unlock()
	t.alarm = time.AfterFunc(validity-acquired.elapsed(), t.ring)
	return t
}

// ring ends a term that is past its deadline. The alarm may be early, as two
// clocks that are read one after the other differ: then it is set again.
func (t *term) ring() {
	if !t.leading() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over == nil {
		t.alarm.Reset(t.untilDeadline())
	}
}

// leading asks the clock.
func (t *term) leading() bool {
	if t.remaining() > 0 {
		return true
	}
	t.end(ErrLeaseLost)
	return false
}

// remaining is the time until the term ends unless it is renewed; negative when
// that is past. A term that is over has none.
func (t *term) remaining() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over != nil {
		return 0
	}
	return t.untilDeadline()
}

// pastEnd is for how long the term has been over: since the deadline, or since it
// was ended before that. It is negative until then.
func (t *term) pastEnd() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	past := -t.untilDeadline()
	if t.over != nil {
		past = max(past, t.overAt.elapsed())
	}
	return past
}

func (t *term) untilDeadline() time.Duration { return t.validity - t.renewed.elapsed() }

// extend counts a renewal that began at the given moment and has been
// acknowledged by now. It is false if the term was over before.
func (t *term) extend(start moment) bool {
	if !t.leading() {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	// The clock once more, since it went on.
	if t.over != nil || t.untilDeadline() <= 0 {
		return false
	}
	t.renewed = start
	t.alarm.Reset(t.untilDeadline())
	return true
}

// end ends the term. The first cause stays; it is returned.
func (t *term) end(cause error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over == nil {
		t.over, t.overAt = cause, now()
		t.alarm.Stop()
		close(t.ended)
		t.cancel(cause)
	}
	return t.over
}

// leadership is the context of the leader's work. It asks the clock whenever it
// is asked, so it is over in time even if no timer could fire. A context that
// is derived from it is over when the timer has fired.
type leadership struct {
	context.Context
	term *term
}

func (l leadership) Done() <-chan struct{} {
	l.term.leading()
	return l.Context.Done()
}

func (l leadership) Err() error {
	l.term.leading()
	return l.Context.Err()
}

// Value has what tells of a lost Lease when the context is over already: while
// the work finishes, at a planned stop.
func (l leadership) Value(key any) any {
	if key == (lostKey{}) {
		return l.term.ended
	}
	return l.Context.Value(key)
}

type lostKey struct{}

// lostTo returns what is closed when the Lease is lost, for a leader's context
// whose work has not returned; nil, which never is, for any other.
func lostTo(ctx context.Context) <-chan struct{} {
	ended, _ := ctx.Value(lostKey{}).(chan struct{})
	return ended
}
