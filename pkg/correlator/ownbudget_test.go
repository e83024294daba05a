package correlator

import (
	"fmt"
	"math"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/pkg/occurrence"
)

func newBudget(t testing.TB, name string, burst int, qps float64) *occurrence.Budget {
	t.Helper()
	b, err := occurrence.NewBudget(name, burst, qps)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// spends correlates an Event with a budget of its own, nil for none, a time after the one before.
func (s *stream) spends(after time.Duration, user string, event *corev1.Event, b *occurrence.Budget) Decision {
	s.now = s.now.Add(after)
	return s.Correlate(&occurrence.Occurrence{Event: event, Weight: 1, User: user, Budget: b}, s.now)
}

// reason returns an Event of the n-th series of an object.
func reason(object string, n int) *corev1.Event { return about(object, fmt.Sprint("r", n), "m") }

// firsts returns how many first writes a budget allows at once about an object that nobody has
// reported about.
func (s *stream) firsts(object string, b *occurrence.Budget) (n int) {
	for s.spends(0, robot, reason(object, n), b).Delay == 0 && n < 200 {
		n++
	}
	return n
}

func TestOccurrencesWithABudgetOfTheirOwnHaveThat(t *testing.T) {
	for name, test := range map[string]struct {
		budget *occurrence.Budget
		want   int
	}{
		"none":      {nil, 25},
		"zero":      {new(occurrence.Budget), 25},
		"smaller":   {newBudget(t, "a", 3, 1./300), 3},
		"larger":    {newBudget(t, "a", 60, 1./300), 60},
		"unlimited": {newBudget(t, "a", 1, math.Inf(1)), 200},
	} {
		s := newStream(t, func(o *Options) { o.MaxSeries = 1000 })
		if got := s.firsts("web-0", test.budget); got != test.want {
			t.Errorf("%s: %d first writes at once, want %d", name, got, test.want)
		}
	}
}

// Each of them has a bucket. None spends the tokens of another, whoever is noisy.
func TestBudgetsAreSpentSeparately(t *testing.T) {
	all := map[string]*occurrence.Budget{
		"usual": nil, "a": newBudget(t, "a", 3, 1./300), "of another rule": newBudget(t, "b", 3, 1./300),
		"with another burst": newBudget(t, "a", 4, 1./300), "with another rate": newBudget(t, "a", 3, 1./60),
	}
	for noisy := range all {
		s := newStream(t, nil)
		for i := range 90 {
			s.spends(time.Millisecond, robot, reason("web-0", i), all[noisy])
		}
		if d := s.spends(0, robot, reason("web-0", 90), all[noisy]); d.Drop != occurrence.BudgetSpent {
			t.Fatalf("%s is not spent: %+v", noisy, d)
		}
		for other, b := range all {
			if other != noisy {
				s.want(s.spends(0, robot, reason("web-0", 100), b), NewSeries, NotDeferred, 0)
			}
		}
	}
}

// An equal budget is the same one: a reload that does not change a rule does not fill its bucket.
func TestEqualBudgetsShareABucket(t *testing.T) {
	s := newStream(t, nil)
	if got := s.firsts("web-0", newBudget(t, "a", 3, 1./300)); got != 3 {
		t.Fatal(got)
	}
	s.want(s.spends(0, robot, reason("web-0", 50), newBudget(t, "a", 3, 1./300)), NewSeries, Budget, 10*time.Minute) // another one waits for 5
	s.want(s.spends(0, kubelet, reason("web-0", 50), newBudget(t, "a", 3, 1./300)), NewSeries, NotDeferred, 0)
	s.want(s.spends(0, robot, reason("web-1", 50), newBudget(t, "a", 3, 1./300)), NewSeries, NotDeferred, 0)
}

// A series whose occurrences have different budgets is one series.
func TestBudgetIsNotPartOfTheSeries(t *testing.T) {
	s := newStream(t, nil)
	event := about("web-0", "r", "m")
	usual := s.spends(0, robot, event, nil)
	own := s.spends(0, robot, event, newBudget(t, "a", 3, 1./300))
	if usual.Target.Key != own.Target.Key || usual.Target.Series() != own.Target.Series() {
		t.Errorf("%+v and %+v", usual.Target, own.Target)
	}
}

// A tenant whose occurrences have many budgets has more subjects, and evicts its own.
func TestBudgetsMakeNoOtherTenantForgotten(t *testing.T) {
	const size, own = 100, 20
	s := newStream(t, func(o *Options) { o.CacheSize = size })
	report := func(i int) Decision { return s.reports(0, kubelet, about(fmt.Sprint("db-", i), "BackOff", "m")) }
	for i := range own {
		report(i)
	}
	for i := range 100 * size {
		s.spends(0, robot, about(fmt.Sprint("web-", i%50), "r", "m"), newBudget(t, fmt.Sprint("b", i), 3, 1))
	}
	for i := range own {
		if d := report(i); d.Reason != Repeat {
			t.Errorf("subject %d is forgotten: %s", i, d.Reason)
		}
	}
	if n := s.subjects.Len(); n != size {
		t.Errorf("%d subjects", n)
	}
}
