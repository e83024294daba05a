package trail

import (
	"math"
	"unsafe"
)

// stepLog has the last steps for all followers. It is empty while there is none. The mutex of the Trail guards it.
type stepLog struct {
	maxBytes  int64
	bytes     int64   // of the steps
	ring      []*Step // that of number n is at n modulo its length; nil if it is empty
	first     uint64  // number of the oldest step
	next      uint64  // number of the next step
	followers int
}

// loggedBytes is what a step without texts takes in a stepLog.
const loggedBytes = int64(unsafe.Sizeof(Step{}) + unsafe.Sizeof(&Step{}))

// add adds what was done to a number of occurrences.
func (l *stepLog) add(st *step, occurrences, now int64) {
	if l.followers == 0 {
		return
	}
	one := *st
	one.occurrences, one.first, one.last = occurrences, now, now
	step := one.copy()
	if l.ring == nil {
		l.ring = make([]*Step, l.maxBytes/loggedBytes)
	}
	for l.bytes += step.bytes(); l.bytes > l.maxBytes; l.first++ {
		oldest := l.at(l.first)
		l.bytes -= (*oldest).bytes()
		*oldest = nil
	}
	*l.at(l.next) = &step
	l.next++
}

// at is the place of the step of a number.
func (l *stepLog) at(number uint64) **Step { return &l.ring[number%uint64(len(l.ring))] }

// since returns the steps from a number on up to another one, at most limit, and the number of the step after them.
func (l *stepLog) since(number, end uint64, limit int) (steps []*Step, next uint64) {
	for ; number < end && len(steps) < limit; number++ {
		steps = append(steps, *l.at(number))
	}
	return steps, number
}

// clear removes all steps.
func (l *stepLog) clear() { l.ring, l.first, l.bytes = nil, l.next, 0 }

// bytes is the memory of a step in a stepLog, its texts included: those that it shares stay as long as it does.
func (s *Step) bytes() int64 {
	o := &s.Regarding
	return loggedBytes + int64(len(s.Detail)+len(s.Rule)+len(s.Receiver)+len(s.User)+len(s.Namespace)+len(s.Event)+
		len(o.Kind)+len(o.Namespace)+len(o.Name)+len(o.UID)+len(o.FieldPath)+len(s.Type)+len(s.Reason)+len(s.Message)+len(s.Reporter))
}

// Follower returns steps as they come, and never waits for more: its caller decides how often it reads. A slow one
// loses the oldest, and costs nobody else anything. One goroutine at a time uses it. It belongs to its caller, who must
// close it.
type Follower struct {
	t      *Trail
	next   uint64
	atEnd  bool // the last Read has read all there was
	closed bool
}

// Follow returns a follower of what is done from now on.
func (t *Trail) Follow() *Follower {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.log.followers++
	return &Follower{t: t, next: t.log.next}
}

// Read returns at most limit steps, and how many were lost before them, since the follower was too slow. Each step is
// of a single time, and its occurrences are those of that time. The steps are shared, and must not be changed. After
// Close it returns nothing. It needs the mutex that the pipeline needs for each step: a caller that reads too often
// delays reports.
func (f *Follower) Read(limit int) (steps []*Step, lost int64) {
	return f.ReadTo(limit, math.MaxUint64)
}

// ReadTo is Read up to a place.
func (f *Follower) ReadTo(limit int, end uint64) (steps []*Step, lost int64) {
	f.t.mu.Lock()
	defer f.t.mu.Unlock()
	if f.closed {
		return nil, 0
	}
	l := &f.t.log
	if f.next < l.first {
		lost, f.next = int64(l.first-f.next), l.first
	}
	steps, f.next = l.since(f.next, min(l.next, end), limited(limit))
	f.atEnd = f.next == l.next
	return steps, lost
}

// Place is the number of the step that Read returns next. Two followers of a Trail at the same place read the same.
func (f *Follower) Place() uint64 { return f.next }

// MoveTo has the follower continue from a place of another one.
func (f *Follower) MoveTo(place uint64) { f.next = place }

// UpToDate reports whether the last Read has read all there was.
func (f *Follower) UpToDate() bool { return f.atEnd }

// Close has no more steps kept for the follower. It may be called again.
func (f *Follower) Close() {
	f.t.mu.Lock()
	defer f.t.mu.Unlock()
	if f.closed {
		return
	}
	f.closed = true
	l := &f.t.log
	if l.followers--; l.followers == 0 {
		l.clear()
	}
}
