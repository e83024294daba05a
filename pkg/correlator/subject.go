package correlator

import "time"

// Times within the correlator are durations since its first occurrence.

// subject has the state of a source that reports about an object. Most have one series, whose message
// is the only one of one group: they take 96 bytes, and 48 more in the cache. What the others have is in rest.
type subject struct {
	budget budget
	first  series
	group  group
	rest   *rest // or nil
}

// rest has the series and groups but the first ones, and the messages of the first group but the first.
type rest struct {
	series  []series
	groups  []fullGroup
	further []uint64
}

// series has the state of a series. It takes 40 bytes.
type series struct {
	began, seen time.Duration // first occurrence since the last restart; last occurrence
	// due is the time of the last write that was decided on, and written that of the
	// write before. Occurrences before due join that write.
	due, written time.Duration
	key          uint32   // a part of its Key, which is enough within a subject
	writes       uint8    // 0 if it has not begun, 2 for all further ones
	why          Deferral // of the last write
	aside        bool     // a token is set aside for the final count
}

// more returns the rest, a new one if there is none.
func (s *subject) more() *rest {
	if s.rest == nil {
		s.rest = new(rest)
	}
	return s.rest
}

// len returns the number of series, of which the first may not have begun.
func (s *subject) len() int {
	if s.rest == nil {
		return 1
	}
	return 1 + len(s.rest.series)
}

// weight is what the subject counts as among those in memory: each series or group but the first as one more.
func (s *subject) weight() int64 {
	if s.rest == nil {
		return 1
	}
	return 1 + int64(max(len(s.rest.series), len(s.rest.groups)))
}

// at returns the i-th series.
func (s *subject) at(i int) *series {
	if i == 0 {
		return &s.first
	}
	return &s.rest.series[i-1]
}

// find returns the series with a key, or nil.
func (s *subject) find(key uint32) *series {
	for i := range s.len() {
		if r := s.at(i); r.key == key && r.writes > 0 {
			return r
		}
	}
	return nil
}

// add returns a new series, which the caller begins. At the limit, it replaces the one that was quiet
// for longest and has no pending write; if there is none, add returns nil. The result is valid until
// the next call.
func (s *subject) add(k *bucket, limit int, now time.Duration) *series {
	switch n := s.len(); {
	case s.first.writes == 0:
		return &s.first
	case n < limit:
		s.more().series = append(s.more().series, series{})
		return s.at(n)
	}
	var quietest *series
	for i := range s.len() {
		if r := s.at(i); r.due <= now && (quietest == nil || r.seen < quietest.seen) {
			quietest = r
		}
	}
	if quietest == nil {
		return nil
	}
	if quietest.settle(); quietest.aside {
		s.budget.add(k, 1)
	}
	*quietest = series{}
	return quietest
}

// wrote counts a write.
func (r *series) wrote() { r.writes = min(2, r.writes+1) }

// settle accounts for a write that is over. The write of a final count used the token that
// was set aside for it.
func (r *series) settle() {
	r.written = r.due
	if r.why == Settling {
		r.aside = false
		r.wrote()
	}
	r.why = NotDeferred
}

// begin decides on the first occurrence of a series.
func (s *subject) begin(c *Correlator, r *series, now time.Duration) {
	s.budget.fill(&c.bucket, now)
	others := s.survey(c, r, now)
	wait := s.budget.acquireFirst(&c.bucket, others.needed+1+c.bucket.kept(others.active+1, s.budget.reserve))
	*r = series{key: r.key, began: now, seen: now, due: now + wait, writes: 1}
	if wait > 0 {
		r.why = Budget
	}
}

// restart decides on the first occurrence of a series after Options.Interval.
func (s *subject) restart(c *Correlator, r *series, now time.Duration) {
	if r.settle(); r.aside {
		s.budget.add(&c.bucket, 1)
	}
	s.begin(c, r, now)
}

// repeat decides on a further occurrence of a series.
func (s *subject) repeat(c *Correlator, r *series, now time.Duration, newStyle bool) {
	r.seen = now
	if r.due <= now {
		r.settle()
	}
	switch r.why {
	case Spaced:
		return // it joins that write
	case Budget:
		// The claim assumed that the reserve gets half of the refill. If no claim
		// is open, the token was there sooner.
		if s.budget.fill(&c.bucket, now); !s.budget.claimed() {
			r.bringForward(c, now, newStyle)
		}
		return
	}
	s.budget.fill(&c.bucket, now)
	others := s.survey(c, r, now)
	next := r.written + r.gap(c, newStyle)
	if !r.aside {
		r.aside = s.budget.acquire()
	}
	switch {
	case !r.aside:
		if due := now + s.budget.claim(&c.bucket); due > next {
			r.plan(due, Budget)
		} else {
			r.plan(next, Spaced)
		}
	case !others.behind && s.budget.general >= 1+others.needed+c.bucket.kept(others.active+1, s.budget.reserve):
		s.budget.acquire()
		r.plan(max(now, next), Spaced)
	case s.budget.claimed() && now-r.written > until(s.budget.general, c.bucket.generalRate):
		// Others have no token set aside, and wait for the next one. This series has
		// waited longer than they have to, so it uses its own now.
		r.aside = false
		r.plan(max(now, next), Spaced)
	default:
		r.due, r.why = now+c.options.Heartbeat, Settling
	}
}

// plan adds a write that has a token or a claim.
func (r *series) plan(due time.Duration, why Deferral) {
	r.due, r.why = due, why
	r.wrote()
}

// bringForward is called when a write that waits for the budget has its token.
func (r *series) bringForward(c *Correlator, now time.Duration, newStyle bool) {
	if r.writes == 1 { // first writes are not spaced
		r.due, r.why = now, NotDeferred
		return
	}
	r.due, r.why = max(now, r.written+r.gap(c, newStyle)), Spaced
}

// gap returns the time between the last write of the series and the next one.
func (r *series) gap(c *Correlator, newStyle bool) time.Duration {
	longest := c.options.Heartbeat
	if newStyle && r.writes > 1 {
		// As in client-go's tools/events, the second occurrence starts the series,
		// which then has a heartbeat.
		return longest
	}
	return min(max(minGap, r.written-r.began), longest)
}

// minGap is the minimum time between two writes of a series.
const minGap = time.Second

// others describes the series of a subject except one.
type others struct {
	active int // not quiet
	// needed is the number of active ones without a token for their final count.
	needed float64
	// behind is set if one of them is settling and was written earlier, so that the
	// next token is for that one. It acquires it, or is written, within a heartbeat.
	behind bool
}

// survey describes all series except one. It returns the tokens set aside for quiet series
// to the budget.
func (s *subject) survey(c *Correlator, but *series, now time.Duration) (o others) {
	for i := range s.len() {
		r := s.at(i)
		if r == but {
			continue
		}
		if r.due > now && r.why != Settling {
			o.active++
			continue
		}
		o.behind = o.behind || r.due > now && r.written < but.written
		if r.due <= now {
			r.settle()
		}
		quiet := r.due <= now && r.seen+c.options.Heartbeat < now
		switch {
		case quiet && r.aside:
			r.aside = false
			s.budget.add(&c.bucket, 1)
		case !quiet:
			o.active++
			if !r.aside {
				o.needed++
			}
		}
	}
	return o
}
