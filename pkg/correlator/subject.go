package correlator

import (
	"time"

	"github.com/eventd/eventd/pkg/occurrence"
)

// Times within the correlator are counted from its first occurrence.

// subject is what is remembered of a source that reports about an object.
type subject struct {
	budget budget
	series []series
	groups []group

	// Most subjects have one series, which then is in the same piece of memory.
	firstSeries [1]series
	firstGroup  [1]group
}

// series is what is remembered of one. It takes about 90 bytes.
type series struct {
	key         occurrence.Key
	began, seen time.Duration // its first occurrence of late, and its last
	// due is when the last write that was decided on is made, and written when
	// the one before it was. Until due, occurrences join that write.
	due, written time.Duration
	why          Deferral // the last write waits; NotDeferred if it does not
	writes       int
	// aside: a token is set aside for the series' final count.
	aside bool
}

// newSubject returns one without series, in the memory of one that is not needed
// any more if there is such a one.
func newSubject(spare *subject, budget budget) *subject {
	s := spare
	if s == nil {
		s = new(subject)
	}
	s.budget = budget
	s.series, s.groups = s.firstSeries[:0], s.firstGroup[:0]
	return s
}

// find returns the series with a key, or nil.
func (s *subject) find(key occurrence.Key) *series {
	for i := range s.series {
		if s.series[i].key == key {
			return &s.series[i]
		}
	}
	return nil
}

// add makes room for a further series and returns it, or nil if the subject owes
// as many as it may. What is returned is good until the next call.
func (s *subject) add(k *bucket, limit int, now time.Duration) *series {
	if len(s.series) < limit {
		s.series = append(s.series, series{})
		return &s.series[len(s.series)-1]
	}
	var quietest *series
	for i := range s.series {
		if r := &s.series[i]; r.due <= now && (quietest == nil || r.seen < quietest.seen) {
			quietest = r
		}
	}
	if quietest == nil {
		return nil
	}
	if quietest.settle(); quietest.aside {
		s.budget.give(k, 1)
	}
	*quietest = series{}
	return quietest
}

// settle takes note of a write that has been made by now: one that waited for
// the final count used the token that was set aside for it.
func (r *series) settle() {
	r.written = r.due
	if r.why == Settling {
		r.aside = false
		r.writes++
	}
	r.why = NotDeferred
}

// begin decides on the first occurrence of a series.
func (s *subject) begin(c *Correlator, r *series, now time.Duration) {
	s.budget.fill(&c.bucket, now)
	others := s.survey(c, r, now)
	wait := s.budget.takeFirst(&c.bucket, others.needed+1+c.bucket.kept(others.active+1, s.budget.reserve))
	*r = series{key: r.key, began: now, seen: now, due: now + wait, writes: 1}
	if wait > 0 {
		r.why = Budget
	}
}

// restart decides on the first occurrence of a series after a long time.
func (s *subject) restart(c *Correlator, r *series, now time.Duration) {
	if r.settle(); r.aside {
		s.budget.give(&c.bucket, 1)
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
		return // it joins the write
	case Budget:
		// The claim was for the worst case. It has been met already if nothing
		// is claimed any more.
		if s.budget.fill(&c.bucket, now); !s.budget.claimed() {
			r.bringForward(c, now, newStyle)
		}
		return
	}
	s.budget.fill(&c.bucket, now)
	others := s.survey(c, r, now)
	if !r.aside {
		if r.aside = s.budget.take(); !r.aside {
			r.due, r.why = now+s.budget.claim(&c.bucket), Budget
			if next := r.written + r.gap(c, newStyle); next >= r.due {
				r.due, r.why = next, Spaced
			}
			r.writes++
			return
		}
	}
	if !others.behind && s.budget.general >= 1+others.needed+c.bucket.kept(others.active+1, s.budget.reserve) {
		s.budget.take()
		r.due, r.why = max(now, r.written+r.gap(c, newStyle)), Spaced
		r.writes++
		return
	}
	if s.budget.claimed() && now-r.written > until(s.budget.general, c.bucket.generalRate) {
		// Others have nothing set aside and stand in line for every token that
		// comes. It has waited for longer than they do, so it joins them.
		r.due, r.why, r.aside = max(now, r.written+r.gap(c, newStyle)), Spaced, false
		r.writes++
		return
	}
	r.due, r.why = now+c.options.Heartbeat, Settling
}

// bringForward takes note that a write which waits for the budget has its token.
func (r *series) bringForward(c *Correlator, now time.Duration, newStyle bool) {
	if r.writes == 1 { // it is the first one
		r.due, r.why = now, NotDeferred
		return
	}
	r.due, r.why = max(now, r.written+r.gap(c, newStyle)), Spaced
}

// gap is how long after a write of the series the next one may come.
func (r *series) gap(c *Correlator, newStyle bool) time.Duration {
	longest := c.options.Heartbeat
	if newStyle && r.writes > 1 {
		// As with client-go, the series begins with its second occurrence and
		// has a heartbeat from then on.
		return longest
	}
	return min(max(minGap, r.written-r.began), longest)
}

// minGap is the least time between two writes of a series' repeats.
const minGap = time.Second

// others are the series of a subject but for one.
type others struct {
	active int // not quiet
	// needed is how many of those will need a token for their final count if
	// they repeat themselves.
	needed float64
	// behind: one of them settles that was written longer ago, so the next token
	// is for that one. It takes it within a heartbeat, or is written then.
	behind bool
}

// survey takes back the tokens of series that have gone quiet with nothing owed,
// and looks at all but one.
func (s *subject) survey(c *Correlator, but *series, now time.Duration) (o others) {
	for i := range s.series {
		r := &s.series[i]
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
			s.budget.give(&c.bucket, 1)
		case !quiet:
			o.active++
			if !r.aside {
				o.needed++
			}
		}
	}
	return o
}
