package trail

// stepLog has the last steps for all followers. It is empty while there is none. The mutex of the Trail guards it.
type stepLog struct {
	ring      []*Step // that of number n is at n modulo its length; nil if it is empty
	most      uint64
	first     uint64 // number of the first step since it was empty
	next      uint64 // number of the next step
	followers int
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
}

// oldest is the number of the oldest step.
func (l *stepLog) oldest() uint64 {
	if l.next-l.first > l.most {
		return l.next - l.most
	}
	return l.first
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
	f.t.mu.Lock()
	defer f.t.mu.Unlock()
	if f.closed {
		return nil, 0
	}
	l := &f.t.log
	if oldest := l.oldest(); f.next < oldest {
		lost, f.next = int64(oldest-f.next), oldest
	}
	for limit = limited(limit); f.next < l.next && len(steps) < limit; f.next++ {
		steps = append(steps, l.ring[f.next%l.most])
	}
	f.atEnd = f.next == l.next
	return steps, lost
}

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
		l.ring, l.first = nil, l.next
	}
}
