package remote

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/pkg/occurrence"
)

// An Event is the latest one of its occurrences, with the time of the first one, their number, a name of its own,
// and no metadata but what a client may set.
func TestEventIsTheLatestOneWithAllThatItCounts(t *testing.T) {
	first := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, test := range map[string]struct {
		report func(e *corev1.Event, at time.Time)
		sent   func(e *corev1.Event, last time.Time, weight int32)
	}{
		"classic": {
			report: func(e *corev1.Event, at time.Time) {
				e.FirstTimestamp, e.LastTimestamp, e.Count = metav1.NewTime(at), metav1.NewTime(at), 1
			},
			sent: func(e *corev1.Event, last time.Time, weight int32) {
				e.FirstTimestamp, e.LastTimestamp, e.Count = metav1.NewTime(first), metav1.NewTime(last), weight
			},
		},
		"new style": {
			report: func(e *corev1.Event, at time.Time) {
				e.EventTime, e.Series = metav1.NewMicroTime(at), &corev1.EventSeries{Count: 77}
			},
			sent: func(e *corev1.Event, last time.Time, weight int32) {
				e.EventTime = metav1.NewMicroTime(first)
				if weight > 1 {
					e.Series = &corev1.EventSeries{Count: weight, LastObservedTime: metav1.NewMicroTime(last)}
				}
			},
		},
	} {
		for weight := int32(1); weight <= 3; weight++ {
			t.Run(fmt.Sprint(name, " ", weight), func(t *testing.T) {
				event := func(at time.Time, meta metav1.ObjectMeta) *corev1.Event {
					meta.Namespace, meta.Labels, meta.Annotations = "ns", map[string]string{"a": "b"}, map[string]string{"at": at.String()}
					meta.OwnerReferences, meta.Finalizers = []metav1.OwnerReference{{Name: "owner"}}, []string{"example.com/a"}
					return &corev1.Event{ObjectMeta: meta}
				}
				var i *item
				var last time.Time
				for n := range weight {
					last = first.Add(time.Duration(n) * time.Minute)
					o := &occurrence.Occurrence{Weight: 1, Event: event(last, metav1.ObjectMeta{
						Name: "given", GenerateName: "given-", UID: "uid", ResourceVersion: "7", Generation: 1,
					})}
					if test.report(o.Event, last); i == nil {
						i = newItem(o)
					} else {
						i.merge(o, 0)
					}
				}
				i.name = "own"
				want := event(last, metav1.ObjectMeta{Name: "own"})
				test.sent(want, last, weight)
				if diff := cmp.Diff(*want, eventOf(i)); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		}
	}
}

// Who can guess the name of an Event could report under it first.
func TestNamesOfEventsCannotBeGuessed(t *testing.T) {
	names := make(map[string]bool)
	for range 100 {
		i := newItem(&occurrence.Occurrence{Weight: 1, Event: &corev1.Event{InvolvedObject: corev1.ObjectReference{Name: "web"}}})
		names[nameOf(i)] = true
	}
	if len(names) != 100 {
		t.Errorf("100 Events have %d names", len(names))
	}
}
