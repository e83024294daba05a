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
