package correlator

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/pkg/occurrence"
)

const (
	kubelet = "system:node:node-1"
	robot   = "system:serviceaccount:shop:robot"
)

// reports correlates an Event that a user reports, a time after the one before.
func (s *stream) reports(after time.Duration, user string, event *corev1.Event) Decision {
	s.now = s.now.Add(after)
	return s.Correlate(&occurrence.Occurrence{Event: event, Weight: 1, User: user}, s.now)
}

// Both claim to be the kubelet of node-1.
func TestUserSpendsTheBudgetOfNoOther(t *testing.T) {
	for name, who := range map[string]struct{ noisy, other string }{
		"a ServiceAccount with the kubelet's source": {robot, kubelet},
		"the kubelet": {kubelet, robot},
		"another ServiceAccount of the same namespace":     {"system:serviceaccount:shop:other", robot},
		"a ServiceAccount, and a recorder in this process": {robot, ""},
		"a recorder in this process":                       {"", kubelet},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStream(t, nil)
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

func TestObjectsThatOneUserReportsAboutHaveBudgetsOfTheirOwn(t *testing.T) {
	s := newStream(t, nil)
	for i := range 90 {
		s.reports(0, kubelet, about("web-0", fmt.Sprint("r", i), "m"))
	}
	s.want(s.reports(0, kubelet, about("web-1", "BackOff", "m")), NewSeries, NotDeferred, 0)
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

func TestUsersShareTheEventOfASeries(t *testing.T) {
	s := newStream(t, nil)
	event := about("web-0", "BackOff", "m")
	one, other := s.reports(0, robot, event), s.reports(0, kubelet, event)
	if one.Target.Key != other.Target.Key || one.Target.Series() != other.Target.Series() {
		t.Error("an Event that two users report has two series")
	}
	if none := s.occurs(0, event); none.Target.Key != one.Target.Key {
		t.Error("a recorder in this process has another series")
	}
}

func TestUsersHaveBudgetsOfTheirOwnWhateverTheKeyFunction(t *testing.T) {
	s := newStream(t, func(o *Options) {
		o.SubjectKey = func(e *corev1.Event) string { return e.Source.Component }
		o.MaxSeries, o.Burst = 5, 5
	})
	for i := range 20 {
		s.reports(0, robot, about(fmt.Sprint("web-", i), "Forged", "m"))
	}
	s.want(s.reports(0, kubelet, about("web-0", "BackOff", "m")), NewSeries, NotDeferred, 0)
	for i := range 20 {
		s.reports(0, kubelet, about(fmt.Sprint("web-", i), "BackOff", "m"))
	}
	if d := s.reports(0, kubelet, about("db-0", "BackOff", "m")); d.Drop != occurrence.BudgetSpent {
		t.Errorf("one user's Events of one source share no budget: %+v", d)
	}
}

// flood reports a new series about a new object as a new ServiceAccount, many times.
func (s *stream) flood(occurrences int) {
	for i := range occurrences {
		s.reports(0, fmt.Sprint("system:serviceaccount:shop:robot-", i), about(fmt.Sprint("web-", i), fmt.Sprint("r", i), "m"))
	}
}

func TestTenantMakesNoOtherForgotten(t *testing.T) {
	const size, own = 100, 20
	t.Run("subjects", func(t *testing.T) {
		s := newStream(t, func(o *Options) { o.CacheSize = size })
		for i := range own {
			s.reports(0, kubelet, about(fmt.Sprint("db-", i), "BackOff", "m"))
		}
		s.flood(100 * size)
		for i := range own {
			if d := s.reports(0, kubelet, about(fmt.Sprint("db-", i), "BackOff", "m")); d.Reason != Repeat {
				t.Errorf("object %d was evicted: %s", i, d.Reason)
			}
		}
		if s.subjects.Len() > size {
			t.Errorf("%d subjects are in the cache", s.subjects.Len())
		}
	})
	t.Run("groups of a key function", func(t *testing.T) {
		s := newStream(t, func(o *Options) {
			o.CacheSize, o.MaxMessages = size, 2
			o.GroupKey = func(e *corev1.Event) (string, string) { return e.Reason, e.Message }
		})
		for i := range own {
			s.reports(0, kubelet, about("db-0", fmt.Sprint("BackOff", i), "m"))
		}
		s.flood(100 * size)
		for i := range own {
			if d := s.reports(0, kubelet, about("db-0", fmt.Sprint("BackOff", i), "another")); d.Reason != Combined {
				t.Errorf("group %d was evicted: %s", i, d.Reason)
			}
		}
	})
}
