package correlator

import (
	"fmt"
	"math"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/pkg/occurrence"
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
		sub := subject{budget: budget{general: -1, reserve: s.bucket.reserveSize}, first: r}
		sub.repeat(s.Correlator, &sub.first, c.after, false)
		if left := sub.first.due - c.after; left != c.left {
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
		sub := subject{budget: budget{general: -1, filled: now}, first: r}
		sub.repeat(s.Correlator, &sub.first, now, false)
		c.want.began, c.want.seen, c.want.written, c.want.due = c.began, now, written, c.want.due+written
		if got := sub.first; got != c.want {
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
		sub := subject{budget: c.budget, first: c.made}
		if sub.repeat(s.Correlator, &sub.first, now, true); sub.first.writes < 2 {
			t.Errorf("%s: %d writes", name, sub.first.writes)
		}
	}
}

// A token that was set aside for a final count returns to the budget if there is none to
// write.
func TestTokensSetAsideReturnUnlessUsed(t *testing.T) {
	s := newStream(t, nil)
	const now = time.Hour
	quiet := series{began: 1, seen: 1, due: 2, writes: 1, why: Spaced, aside: true}
	settled := quiet
	settled.why = Settling
	for name, end := range map[string]func(*subject){
		"to a further series": func(sub *subject) { sub.add(&s.bucket, 1, now) },
		"to a fresh start":    func(sub *subject) { sub.restart(s.Correlator, &sub.first, now) },
		"to another series":   func(sub *subject) { sub.survey(s.Correlator, nil, now) },
	} {
		given := func(r series) float64 {
			none := series{}
			a := subject{budget: budget{filled: now}, first: r}
			b := subject{budget: budget{filled: now}, first: none}
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
			if sub.len() != 2 || 1+len(sub.more().groups) != 2 {
				t.Errorf("%s: %d series and %d groups", name, sub.len(), 1+len(sub.more().groups))
			}
		}
	}
}

const (
	kubelet = "system:node:node-1"
	robot   = "system:serviceaccount:shop:robot"
)

// Both claim to be the kubelet of node-1.
func TestUserSpendsTheBudgetOfNoOther(t *testing.T) {
	bySource := func(o *Options) { o.SubjectKey = func(e *corev1.Event) string { return e.Source.Component } }
	for name, who := range map[string]struct {
		noisy, other string
		change       func(*Options)
	}{
		"a ServiceAccount with the kubelet's source": {robot, kubelet, nil},
		"the kubelet": {kubelet, robot, nil},
		"another ServiceAccount of the same namespace":     {"system:serviceaccount:shop:other", robot, nil},
		"a ServiceAccount, and a recorder in this process": {robot, "", nil},
		"a recorder in this process":                       {"", kubelet, nil},
		"a ServiceAccount, by a key function":              {robot, kubelet, bySource},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStream(t, who.change)
			var last Decision
			for i := range 90 {
				last = s.reports(time.Millisecond, who.noisy, about("web-0", fmt.Sprint("Forged", i), "m"))
			}
			if last.Drop != occurrence.BudgetSpent {
				t.Fatalf("the budget of the noisy one is not spent: %+v", last)
			}
			event := about("web-0", "BackOff", "m")
			s.want(s.reports(time.Millisecond, who.other, event), NewSeries, NotDeferred, 0)
			s.want(s.reports(time.Minute, who.other, event), Repeat, NotDeferred, 0)
		})
	}
}

func TestUserCombinesTheMessagesOfNoOther(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"groups by message": nil,
		"groups by a key": func(o *Options) {
			o.GroupKey = func(e *corev1.Event) (string, string) { return e.Reason, e.Message }
		},
	} {
		s := newStream(t, change)
		var forged, honest Decision
		for i := range 20 {
			forged = s.reports(time.Millisecond, robot, about("web-0", "BackOff", fmt.Sprint("forged ", i)))
		}
		for i := range 9 {
			honest = s.reports(time.Millisecond, kubelet, about("web-0", "BackOff", fmt.Sprint("real ", i)))
			if honest.Reason != NewSeries || honest.Target.Combined {
				t.Errorf("%s: message %d of the other user is %s", name, i, honest.Reason)
			}
		}
		if honest = s.reports(0, kubelet, about("web-0", "BackOff", "real 9")); forged.Reason != Combined || honest.Target.Key != forged.Target.Key {
			t.Errorf("%s: %s and %s are not counted on one combined Event", name, forged.Reason, honest.Reason)
		}
	}
}

func TestTenantMakesNoOtherForgotten(t *testing.T) {
	const size, own = 100, 20
	for name, test := range map[string]struct {
		change func(*Options)
		// again is the reason for the second occurrence of a kubelet's.
		again Reason
	}{
		"subjects": {func(*Options) {}, Repeat},
		"groups of a key function": {func(o *Options) {
			o.MaxMessages = 2
			o.GroupKey = func(e *corev1.Event) (string, string) { return e.InvolvedObject.Name, e.Message }
		}, Combined},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStream(t, func(o *Options) {
				o.CacheSize = size
				test.change(o)
			})
			report := func(i int, message string) Decision {
				return s.reports(0, kubelet, about(fmt.Sprint("db-", i), "BackOff", message))
			}
			for i := range own {
				report(i, "m")
			}
			for i := range 100 * size { // each a new series of a new ServiceAccount
				s.reports(0, fmt.Sprint("system:serviceaccount:shop:robot-", i), about(fmt.Sprint("web-", i), "r", "m"))
			}
			for i := range own {
				message := "m"
				if test.again == Combined {
					message = "another"
				}
				if d := report(i, message); d.Reason != test.again {
					t.Errorf("the occurrence about object %d is %s: that was evicted", i, d.Reason)
				}
			}
			if s.subjects.Len() > size || s.groups.Len() > size {
				t.Errorf("%d subjects and %d groups are in the caches", s.subjects.Len(), s.groups.Len())
			}
		})
	}
}
