package soak

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/eventd/eventd/test/testenv"
)

// deadline is for what has to happen: in a moment, or in full after minutes on a
// machine that has other things to do. It is not longer than a sink goes on trying.
func deadline() time.Duration { return either(10*time.Minute, 3*time.Minute) }

// object is what an occurrence is about. Each has one series.
type object struct{ namespace, name string }

// counts are of occurrences.
type counts map[object]int64

func (c counts) sum() (sum int64) {
	for _, n := range c {
		sum += n
	}
	return sum
}

// difference is by how much what is stored is not what it should be.
type difference struct {
	lost, twice int64 // occurrences
	duplicates  int   // Events beside the first one of their series
}

func (d *difference) add(other difference) {
	d.lost += other.lost
	d.twice += other.twice
	d.duplicates += other.duplicates
}

// tally adds up what is stored.
func tally(events []corev1.Event) counts {
	c := counts{}
	for i := range events {
		c[object{events[i].Namespace, events[i].InvolvedObject.Name}] += countOf(&events[i])
	}
	return c
}

// differ compares what should be stored with what is.
func differ(want counts, events []corev1.Event) (d difference) {
	got := tally(events)
	d.duplicates = len(events) - len(got)
	for o, n := range want {
		d.lost += max(0, n-got[o])
	}
	for o, n := range got {
		d.twice += max(0, n-want[o])
	}
	return d
}

// countOf is the number of occurrences that an Event stands for, as its readers
// take it.
func countOf(e *corev1.Event) int64 {
	switch {
	case e.Series != nil:
		return int64(e.Series.Count)
	case e.EventTime.IsZero():
		return int64(e.Count)
	default:
		return 1
	}
}

// stored lists what the apiserver has in a namespace, asking it directly.
func stored(t *testing.T, cluster *testenv.ControlPlane, namespace string) []corev1.Event {
	t.Helper()
	list, err := kubernetes.NewForConfigOrDie(cluster.Config()).CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// wantStored checks that in the namespaces of what should be stored each series
// has one Event, with its count.
func wantStored(t *testing.T, cluster *testenv.ControlPlane, want counts) difference {
	t.Helper()
	listed := map[string]bool{}
	var events []corev1.Event
	for o := range want {
		if !listed[o.namespace] {
			listed[o.namespace] = true
			events = append(events, stored(t, cluster, o.namespace)...)
		}
	}
	d := differ(want, events)
	if d != (difference{}) {
		t.Errorf("of %d occurrences of %d series %d are lost, %d are counted twice, and there are %d duplicates",
			want.sum(), len(want), d.lost, d.twice, d.duplicates)
	}
	return d
}

// bounded is for what is done when the test's own context may have ended.
func bounded(t *testing.T) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(t.Context()), deadline())
}

// eventually asks again and again, for what nothing tells of.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline())
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("not in time: " + what)
		}
	}
}

// What all other tests rely on.
func TestDifferencesAreSeen(t *testing.T) {
	event := func(name string, count int32) corev1.Event {
		return corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Namespace: "ns"},
			InvolvedObject: corev1.ObjectReference{Namespace: "ns", Name: name},
			Count:          count,
		}
	}
	newStyle := event("new-style", 0)
	newStyle.EventTime = metav1.NowMicro()
	want := counts{{"ns", "a"}: 3, {"ns", "b"}: 2, {"ns", "new-style"}: 1}
	for _, test := range []struct {
		what   string
		stored []corev1.Event
		seen   difference
	}{
		{"the same", []corev1.Event{event("a", 3), event("b", 2), newStyle}, difference{}},
		{"too little of one and too much of another", []corev1.Event{event("a", 2), event("b", 3), newStyle}, difference{lost: 1, twice: 1}},
		{"an Event that is missing", []corev1.Event{event("a", 3), newStyle}, difference{lost: 2}},
		{"an Event that nobody recorded", []corev1.Event{event("a", 3), event("b", 2), newStyle, event("c", 1)}, difference{twice: 1}},
		{"two Events of one series", []corev1.Event{event("a", 1), event("a", 2), event("b", 2), newStyle}, difference{duplicates: 1}},
	} {
		if d := differ(want, test.stored); d != test.seen {
			t.Errorf("%s: seen is %+v, want %+v", test.what, d, test.seen)
		}
	}
}
