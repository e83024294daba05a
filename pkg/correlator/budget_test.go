package correlator

import (
	"fmt"
	"math"
	"testing"
	"time"
)

func TestTokensThatDoNotFitGoToTheOtherPart(t *testing.T) {
	k := newBucket(10, 1) // 8 and 2, half a token per second for each
	for name, c := range map[string]struct {
		before, after budget
		elapsed       time.Duration
	}{
		"neither is full":          {budget{general: 1, reserve: -1}, budget{general: 2, reserve: 0}, 2 * time.Second},
		"the reserve is full":      {budget{general: 1, reserve: 2}, budget{general: 3, reserve: 2}, 2 * time.Second},
		"the general part is full": {budget{general: 8, reserve: 0}, budget{general: 8, reserve: 2}, 2 * time.Second},
		"both are full":            {budget{general: 8, reserve: 2}, budget{general: 8, reserve: 2}, time.Hour},
		"more than all can be":     {budget{general: -3, reserve: -3}, budget{general: 8, reserve: 2}, time.Hour},
	} {
		c.before.fill(&k, c.elapsed)
		if c.after.filled = c.elapsed; c.before != c.after {
			t.Errorf("%s: %+v, want %+v", name, c.before, c.after)
		}
	}
}

func TestExactlyOneTokenIsEnough(t *testing.T) {
	k := newBucket(10, 1)
	first, repeat, none := budget{general: 1, reserve: 1}, budget{general: 1}, budget{}
	if wait := first.acquireFirst(&k, 1); wait != 0 || first.general != 1 || first.reserve != 0 {
		t.Errorf("a first write waits for %v and leaves %+v, where one token is reserved for it and the other is kept", wait, first)
	}
	if !repeat.acquire() || repeat.general != 0 {
		t.Errorf("a repeat leaves %+v", repeat)
	}
	if none.claimed() {
		t.Error("without a token, none is claimed")
	}
}

func TestWaitsAreNeverNegative(t *testing.T) {
	for _, qps := range []float64{math.SmallestNonzeroFloat64, 1e-12, 1. / 300, 1e9, math.MaxFloat32, math.MaxFloat64, math.Inf(1)} {
		s := newStream(t, func(o *Options) { o.QPS, o.Burst = qps, 5 })
		for i := range 30 {
			d := s.occurs(10*time.Second, about("a", fmt.Sprint("r", i%10), "m"))
			if d.Delay < 0 || d.Delay > forever || qps > 1 && d.Deferred == Budget {
				t.Errorf("%v tokens per second: occurrence %d is deferred (%s) by %v", qps, i, d.Deferred, d.Delay)
			}
		}
	}
}

// A claim assumes half of the refill. While the reserve is full, the general part gets all.
func TestWriteThatWaitsIsMadeWhenItsTokenComesSooner(t *testing.T) {
	const spaced = 10 * time.Second
	for name, c := range map[string]struct {
		claimed series
		after   time.Duration
		left    time.Duration // of the delay
	}{
		"not yet":                       {series{writes: 2}, 49 * time.Second, 51 * time.Second},
		"it has come":                   {series{writes: 2}, 51 * time.Second, 0},
		"it has come for a first write": {series{writes: 1}, 51 * time.Second, 0},
		"it has come too soon":          {series{writes: 2, began: 50*time.Second - spaced, written: 50 * time.Second}, 51 * time.Second, spaced - time.Second},
	} {
		s := newStream(t, func(o *Options) { o.Burst, o.QPS = 5, 1./50 })
		r := c.claimed
		r.due, r.why = 100*time.Second, Budget
		sub := subject{budget: budget{general: -1, reserve: s.bucket.reserveSize}, series: []series{r}}
		sub.repeat(s.Correlator, &sub.series[0], c.after, false)
		if left := sub.series[0].due - c.after; left != c.left {
			t.Errorf("%s: waits for another %v, want %v", name, left, c.left)
		}
	}
}

// A series uses the token of its final count when others, without one, would be written
// sooner.
func TestSeriesThatWaitsForLongerThanTheOthersJoinsThem(t *testing.T) {
	const written, soonest = time.Hour, 2 * time.Second // one claimed token, and one more, of one per second
	for name, c := range map[string]struct {
		began, waited time.Duration
		want          series
	}{
		"not yet":                   {0, soonest, series{due: soonest + 25*time.Second, why: Settling, writes: 1, aside: true}},
		"at once":                   {written, soonest + 1, series{due: soonest + 1, why: Spaced, writes: 2}},
		"when the next may be made": {0, soonest + 1, series{due: 25 * time.Second, why: Spaced, writes: 2}},
	} {
		s := newStream(t, func(o *Options) { o.Burst, o.QPS = 5, 2 })
		now := written + c.waited
		r := series{began: c.began, due: written, writes: 1, aside: true}
		sub := subject{budget: budget{general: -1, filled: now}, series: []series{r}}
		sub.repeat(s.Correlator, &sub.series[0], now, false)
		c.want.began, c.want.seen, c.want.written, c.want.due = c.began, now, written, c.want.due+written
		if got := sub.series[0]; got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// The gap after a write of a new-style series depends on whether that was the first.
func TestWritesAreCountedHoweverTheyWereMade(t *testing.T) {
	const now = time.Hour
	for name, c := range map[string]struct {
		made   series
		budget budget
	}{
		"the final count was awaited": {series{why: Settling}, budget{}},
		"there is no token":           {series{}, budget{}},
		"there is one":                {series{}, budget{general: 25}},
	} {
		s := newStream(t, nil)
		c.made.writes, c.budget.filled = 1, now
		sub := subject{budget: c.budget, series: []series{c.made}}
		if sub.repeat(s.Correlator, &sub.series[0], now, true); sub.series[0].writes < 2 {
			t.Errorf("%s: %d writes", name, sub.series[0].writes)
		}
	}
}

// A token that was set aside for a final count returns to the budget if there is none to
// write.
func TestTokensSetAsideReturnUnlessUsed(t *testing.T) {
	s := newStream(t, nil)
	const now = time.Hour
	quiet := series{began: 1, seen: 1, due: 2, why: Spaced, aside: true}
	settled := quiet
	settled.why = Settling
	for name, end := range map[string]func(*subject){
		"to a further series": func(sub *subject) { sub.add(&s.bucket, 1, now) },
		"to a fresh start":    func(sub *subject) { sub.restart(s.Correlator, &sub.series[0], now) },
		"to another series":   func(sub *subject) { sub.survey(s.Correlator, nil, now) },
	} {
		given := func(r series) float64 {
			none := series{}
			a := subject{budget: budget{filled: now}, series: []series{r}}
			b := subject{budget: budget{filled: now}, series: []series{none}}
			end(&a)
			end(&b)
			return a.budget.general + a.budget.reserve - b.budget.general - b.budget.reserve
		}
		if got := given(quiet); got != 1 {
			t.Errorf("%s: %v tokens came back", name, got)
		}
		if got := given(settled); got != 0 {
			t.Errorf("%s: %v tokens came back, though it was used", name, got)
		}
	}
}

func TestQuietestIsReplaced(t *testing.T) {
	secondQuiet := []string{"first", "second", "first", "third"} // which replaces the second
	firstQuiet := []string{"second", "first", "third"}
	for name, last := range map[string]struct {
		order   []string
		message string
		reason  Reason
	}{
		"as a series":         {secondQuiet, "m", Repeat},
		"as the first series": {firstQuiet, "m", Repeat},
		"as a group":          {secondQuiet, "another", Combined},
		"as the first group":  {firstQuiet, "another", Combined},
	} {
		s := newStream(t, func(o *Options) { o.MaxSeries, o.QPS, o.MaxMessages = 2, math.Inf(1), 2 })
		for _, reason := range last.order {
			s.occurs(time.Minute, about("a", reason, "m"))
		}
		if d := s.occurs(time.Minute, about("a", "first", last.message)); d.Reason != last.reason {
			t.Errorf("%s: a recent one is %s", name, d.Reason)
		}
		for i := range 10 {
			s.occurs(time.Minute, about("a", fmt.Sprint("r", i), "m"))
		}
		for _, sub := range s.subjects.Values() {
			if len(sub.series) > 2 || len(sub.groups) > 2 {
				t.Errorf("%s: %d series and %d groups", name, len(sub.series), len(sub.groups))
			}
		}
	}
}
