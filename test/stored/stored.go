// Package stored compares the Events that an apiserver stores with those that were
// recorded.
package stored

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/eventd/eventd/test/testenv"
)

// List returns the Events of a namespace.
func List(t testing.TB, c *testenv.ControlPlane, namespace string) []corev1.Event {
	t.Helper()
	list, err := kubernetes.NewForConfigOrDie(c.Config()).CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// ByObject groups the Events of a namespace by the names of their objects.
func ByObject(t testing.TB, c *testenv.ControlPlane, namespace string) map[string][]corev1.Event {
	t.Helper()
	out := map[string][]corev1.Event{}
	for _, e := range List(t, c, namespace) {
		out[e.InvolvedObject.Name] = append(out[e.InvolvedObject.Name], e)
	}
	return out
}

// Count is the number of occurrences that an Event stands for, as its readers
// understand it.
func Count(e *corev1.Event) int64 {
	switch {
	case e.Series != nil:
		return int64(e.Series.Count)
	case e.EventTime.IsZero():
		return int64(e.Count)
	default:
		return 1
	}
}

// Counts are numbers of occurrences by series, for a suite's own identity of one.
type Counts[S comparable] map[S]int64

// Sum is the number of all occurrences.
func (c Counts[S]) Sum() (sum int64) {
	for _, n := range c {
		sum += n
	}
	return sum
}

// Tally adds up the counts of Events.
func Tally[S comparable](events []corev1.Event, seriesOf func(*corev1.Event) S) Counts[S] {
	c := Counts[S]{}
	for i := range events {
		c[seriesOf(&events[i])] += Count(&events[i])
	}
	return c
}

// Difference is how much the stored Events differ from those that were recorded.
type Difference struct {
	Lost, Twice int64 // occurrences
	Duplicates  int   // Events beside the first one of their series
}

// Diff compares what was recorded with stored Events.
func Diff[S comparable](want Counts[S], events []corev1.Event, seriesOf func(*corev1.Event) S) (d Difference) {
	got := Tally(events, seriesOf)
	d.Duplicates = len(events) - len(got)
	for of, n := range want {
		d.Lost += max(0, n-got[of])
	}
	for of, n := range got {
		d.Twice += max(0, n-want[of])
	}
	return d
}

// Want fails the test if there is a difference.
func Want[S comparable](t testing.TB, want Counts[S], events []corev1.Event, seriesOf func(*corev1.Event) S) {
	t.Helper()
	if d := Diff(want, events, seriesOf); d != (Difference{}) {
		t.Errorf("of %d occurrences of %d series %d are lost, %d are counted twice, and there are %d duplicates%s",
			want.Sum(), len(want), d.Lost, d.Twice, d.Duplicates, Details(want, events, seriesOf))
	}
}

// Details has a line for each Event of a series whose count is wrong.
func Details[S comparable](want Counts[S], events []corev1.Event, seriesOf func(*corev1.Event) S) (lines string) {
	got := Tally(events, seriesOf)
	for i := range events {
		if of := seriesOf(&events[i]); got[of] != want[of] {
			lines += fmt.Sprintf("\n%v: %d of %d, %v", of, Count(&events[i]), want[of], events[i].Annotations)
		}
	}
	return lines
}
