package ha

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/eventd/eventd/test/testenv"
)

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
		c[seriesOf(&events[i])] += countOf(&events[i])
	}
	return c
}

// differ compares what should be stored with what is.
func differ(want counts, events []corev1.Event) (d difference) {
	got := tally(events)
	d.duplicates = len(events) - len(got)
	for of, n := range want {
		d.lost += max(0, n-got[of])
	}
	for of, n := range got {
		d.twice += max(0, n-want[of])
	}
	return d
}

// stored lists what the apiserver has in a namespace, asking it directly: what a
// source has reported.
func stored(t *testing.T, cluster *testenv.ControlPlane, namespace, source string) (events []corev1.Event) {
	t.Helper()
	list, err := kubernetes.NewForConfigOrDie(cluster.Config()).CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		if e := list.Items[i]; e.Source.Component == source || e.ReportingController == source {
			events = append(events, e)
		}
	}
	return events
}

// logDifferences shows what is stored of each series that is not as it should be.
func logDifferences(t *testing.T, want counts, events []corev1.Event) {
	t.Helper()
	got := tally(events)
	for i := range events {
		if of := seriesOf(&events[i]); got[of] != want[of] {
			t.Logf("%v: %d of %d, %v", of, countOf(&events[i]), want[of], events[i].Annotations)
		}
	}
}

// wantStored checks that each series of the ledger has one Event, with its count and
// with the names that were counted last.
func (p *plain) wantStored(t *testing.T, cluster *testenv.ControlPlane) difference {
	t.Helper()
	p.wantAcknowledged(t)
	_, want := p.ledger()
	events := stored(t, cluster, p.namespace, source)
	d := differ(want, events)
	if d != (difference{}) {
		logDifferences(t, want, events)
		t.Errorf("of %d occurrences of %d series %d are lost, %d are counted twice, and there are %d duplicates",
			want.sum(), len(want), d.lost, d.twice, d.duplicates)
	}
	p.wantNames(t, events)
	return d
}

// wantNames checks that Events name what was posted of their series, each name with
// the one occurrence that it stands for. Where nothing else is known of them, it
// tells a name that was counted twice from another that was lost.
func (p *plain) wantNames(t *testing.T, events []corev1.Event) {
	t.Helper()
	posts, count := p.ledger()
	for i := range events {
		e := &events[i]
		s, err := versionOf(e)
		if err != nil {
			t.Errorf("%s: %v", e.Name, err)
		}
		for key, n := range s.clients {
			if made := posts[key]; made.of != seriesOf(e) || n != 1 {
				t.Errorf("%s names %s with %d, and there is %+v", e.Name, key, n, made)
			}
		}
		if want := min(count[seriesOf(e)], window); int64(len(s.clients)) != want {
			t.Errorf("%s names %d clients, want %d", e.Name, len(s.clients), want)
		}
	}
}

// What all scenarios rely on.
func TestDifferencesAreSeen(t *testing.T) {
	event := func(object string, count int32) corev1.Event {
		return corev1.Event{InvolvedObject: corev1.ObjectReference{Name: object}, Reason: "Tested", Count: count}
	}
	newStyle := event("new-style", 0)
	newStyle.EventTime = metav1.NowMicro()
	want := counts{{"a", "Tested"}: 3, {"b", "Tested"}: 2, {"new-style", "Tested"}: 1}
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
