package ha

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/test/stored"
	"github.com/eventd/eventd/test/testenv"
)

// storedBy lists the Events of a namespace that one source has reported.
func storedBy(t *testing.T, cluster *testenv.ControlPlane, namespace, source string) []corev1.Event {
	t.Helper()
	return slices.DeleteFunc(stored.List(t, cluster, namespace), func(e corev1.Event) bool {
		return e.Source.Component != source && e.ReportingController != source
	})
}

// wantStored checks that each series of the ledger has one Event, with its count and
// with the names that were counted last.
func (p *plain) wantStored(t *testing.T, cluster *testenv.ControlPlane) stored.Difference {
	t.Helper()
	p.wantAcknowledged(t)
	_, want := p.ledger()
	events := storedBy(t, cluster, p.namespace, source)
	d := stored.Want(t, want, events, seriesOf)
	p.wantNames(t, events)
	return d
}

// wantNames checks that Events have the posted names of their series, each name with
// the one occurrence that it stands for. A name that was counted twice cannot hide
// another one that was lost.
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
