package soak

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/pkg/ledger"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/test/longrun"
	"github.com/eventd/eventd/test/metrics"
	"github.com/eventd/eventd/test/stored"
	"github.com/eventd/eventd/test/testenv"
)

// deadline bounds all waits. It is not longer than a sink retries.
func deadline() time.Duration { return longrun.Either(10*time.Minute, 3*time.Minute) }

// bounded is for what is done when the test's own context may have ended.
func bounded(t *testing.T) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(t.Context()), deadline())
}

// object is what an occurrence is about. Each has one series.
type object struct{ namespace, name string }

func objectOf(e *corev1.Event) object { return object{e.Namespace, e.InvolvedObject.Name} }

// counts are of occurrences.
type counts = stored.Counts[object]

// wantStored checks that in the namespaces of what should be stored each series
// has one Event, with its count.
func wantStored(t *testing.T, cluster *testenv.ControlPlane, want counts) {
	t.Helper()
	listed := map[string]bool{}
	var events []corev1.Event
	for o := range want {
		if !listed[o.namespace] {
			listed[o.namespace] = true
			events = append(events, stored.List(t, cluster, o.namespace)...)
		}
	}
	stored.Want(t, want, events, objectOf)
}

// wantAllWritten checks that all that was recorded is written, that nothing is
// pending, and that the metrics agree with the ledger.
func wantAllWritten(t *testing.T, totals ledger.Totals, m metrics.Metrics) {
	t.Helper()
	if totals.Written() != totals.Recorded || totals.Pending() != 0 {
		t.Errorf("recorded %d, settled as %v, dropped %v", totals.Recorded, totals.Outcomes, totals.Dropped)
	}
	want := func(n int64, name string, labels ...string) {
		t.Helper()
		if got, ok := m.Lookup(name, labels...); !ok || got != float64(n) {
			t.Errorf("%s %v is %v, and in the ledger %d", name, labels, got, n)
		}
	}
	const settled = "eventd_occurrences_settled_total"
	want(totals.Recorded, "eventd_occurrences_recorded_total")
	want(0, "eventd_occurrences_pending")
	want(totals.Settled(), settled)
	for _, outcome := range occurrence.Outcomes {
		if outcome != occurrence.Dropped {
			want(totals.Outcomes[outcome], settled, "outcome="+string(outcome), "reason=")
		}
	}
	for _, reason := range occurrence.Reasons {
		want(totals.Dropped[reason], settled, "outcome=dropped", "reason="+string(reason))
	}
}
