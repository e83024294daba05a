package trail

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"
)

// followInterval is between two reads of a follower: each needs the mutex that the pipeline needs for each step. The
// followers do not read at the same time, so that what the pipeline does waits for one of them at most.
const followInterval = 250 * time.Millisecond

// ErrClosed is the error of Next after Close.
var ErrClosed = errors.New("the follower is closed")

// stepLog has the last steps for all followers. It is empty while there is none. The mutex of the Trail guards it.
type stepLog struct {
	ring      []*Step // that of number n is at n modulo its length; nil if it is empty
	most      uint64
	first     uint64 // number of the first step since it was empty
	next      uint64 // number of the next step
	followers int
	changed   chan struct{} // closed with the next step; nil if nobody waits
}

func newStepLog(most int) stepLog { return stepLog{most: uint64(most)} }

// add adds what was done to a number of occurrences.
func (l *stepLog) add(st *step, occurrences, now int64) {
	if l.followers == 0 {
		return
	}
	one := *st
	one.occurrences, one.first, one.last = occurrences, now, now
	step := one.copy()
	if l.ring == nil {
		l.ring, l.first = make([]*Step, l.most), l.next
	}
	l.ring[l.next%l.most] = &step
	l.next++
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

// oldest is the number of the oldest step.
func (l *stepLog) oldest() uint64 {
	if l.next-l.first > l.most {
		return l.next - l.most
	}
	return l.first
}

// Follower returns steps as they come. A slow one loses the oldest, and costs nobody else anything. One goroutine at
// a time calls Next. It belongs to its caller, who must close it.
type Follower struct {
	t      *Trail
	next   uint64
	turn   time.Time // it reads at this time, and each followInterval after it
	again  bool      // it has read all, and waits for its turn
	once   sync.Once
	closed chan struct{}
}

// Follow returns a follower of what is done from now on.
func (t *Trail) Follow() *Follower {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.log.followers++
	return &Follower{t: t, next: t.log.next, turn: time.Now().Add(-rand.N(followInterval)), closed: make(chan struct{})}
}

// Next returns at most limit steps, and how many were lost before them, since the follower was too slow. It waits until
// there is one, and for its turn if it has read all. Its error is the cause of ctx, or ErrClosed. Each step is of a
// single time, and its occurrences are those of that time. The steps are shared, and must not be changed.
func (f *Follower) Next(ctx context.Context, limit int) (steps []*Step, lost int64, err error) {
	for {
		if f.again {
			if err := f.wait(ctx, nil); err != nil {
				return nil, 0, err
			}
		}
		steps, lost, changed := f.take(limited(limit))
		if len(steps) > 0 || lost > 0 {
			return steps, lost, nil
		}
		if err := f.wait(ctx, changed); err != nil {
			return nil, 0, err
		}
	}
}

// UpToDate reports whether Next waits for what is not done yet. It is called by the goroutine that calls Next.
func (f *Follower) UpToDate() bool { return f.again }

// wait waits for a change or, if that is nil, for the turn of the follower.
func (f *Follower) wait(ctx context.Context, changed <-chan struct{}) error {
	var turn <-chan time.Time
	if changed == nil {
		timer := time.NewTimer(followInterval - time.Since(f.turn)%followInterval)
		defer timer.Stop()
		turn = timer.C
	}
	select {
	case <-changed:
	case <-turn:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-f.closed:
		return ErrClosed
	}
	return nil
}

// take returns what there is, and what to wait for if that is nothing.
func (f *Follower) take(limit int) (steps []*Step, lost int64, changed <-chan struct{}) {
	f.t.mu.Lock()
	defer f.t.mu.Unlock()
	select {
	case <-f.closed:
		return nil, 0, nil
	default:
	}
	l := &f.t.log
	if oldest := l.oldest(); f.next < oldest {
		lost, f.next = int64(oldest-f.next), oldest
	}
	for ; f.next < l.next && len(steps) < limit; f.next++ {
		steps = append(steps, l.ring[f.next%l.most])
	}
	f.again = f.next == l.next
	if len(steps) > 0 || lost > 0 {
		return steps, lost, nil
	}
	if l.changed == nil {
		l.changed = make(chan struct{})
	}
	return nil, 0, l.changed
}

// Close ends the follower, and a call of Next. It may be called again.
func (f *Follower) Close() {
	f.once.Do(func() {
		f.t.mu.Lock()
		defer f.t.mu.Unlock()
		close(f.closed)
		l := &f.t.log
		if l.followers--; l.followers == 0 {
			l.ring, l.first = nil, l.next
		}
	})
}
