package stored

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestDifferencesAreSeen(t *testing.T) {
	event := func(object string, count int32) corev1.Event {
		return corev1.Event{InvolvedObject: corev1.ObjectReference{Name: object}, Count: count}
	}
	single := event("single", 0)
	single.EventTime = metav1.NowMicro()
	series := event("series", 0)
	series.EventTime, series.Series = metav1.NowMicro(), &corev1.EventSeries{Count: 5}
	want := Counts[string]{"a": 3, "b": 2, "single": 1, "series": 5}
	objectOf := func(e *corev1.Event) string { return e.InvolvedObject.Name }
	for _, test := range []struct {
		what   string
		stored []corev1.Event
		want   Difference
	}{
		{"the same", []corev1.Event{event("a", 3), event("b", 2)}, Difference{}},
		{"too little of one and too much of another", []corev1.Event{event("a", 2), event("b", 3)}, Difference{Lost: 1, Twice: 1}},
		{"an Event that is missing", []corev1.Event{event("a", 3)}, Difference{Lost: 2}},
		{"an Event that nobody recorded", []corev1.Event{event("a", 3), event("b", 2), event("c", 1)}, Difference{Twice: 1}},
		{"two Events of one series", []corev1.Event{event("a", 1), event("a", 2), event("b", 2)}, Difference{Duplicates: 1}},
	} {
		if d := Diff(want, append(test.stored, single, series), objectOf); d != test.want {
			t.Errorf("%s: the difference is %+v, want %+v", test.what, d, test.want)
		}
	}
}
