package e2e

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/metrics"
	"github.com/eventd/eventd/test/replica"
	"github.com/eventd/eventd/test/stored"
	"github.com/eventd/eventd/test/testenv"
)

// eventd is a running eventd.
type eventd struct {
	*replica.Replica
	t       *testing.T
	cluster *testenv.ControlPlane
}

// startEventd starts the binary as the ServiceAccount of deploy/, and waits until
// it serves.
func startEventd(t *testing.T, flags ...string) *eventd {
	t.Helper()
	t.Cleanup(func() { wantGranted(t) })
	c := testenv.Shared(t)
	flags = append([]string{"--leader-elect=false", "--kube-api-qps=unlimited"}, flags...)
	return &eventd{replica.Run(t, c, replica.Options{Flags: flags}), t, c}
}

// newReporter returns a client of eventd with the rights of a recorder in a new namespace.
func (e *eventd) newReporter() (config *rest.Config, namespace string) {
	e.t.Helper()
	namespace = e.cluster.Namespace(e.t)
	return e.Config(replica.Reporter(e.t, e.cluster, namespace)), namespace
}

// counters are the metrics of eventd.
type counters struct{ metrics.Metrics }

func (e *eventd) counters() counters { return counters{e.WantMetrics(e.t, e.cluster)} }

func (c counters) recorded() float64 { return c.Sum("eventd_occurrences_recorded_total") }
func (c counters) pending() float64  { return c.Sum("eventd_occurrences_pending") }
func (c counters) settled(outcome string) float64 {
	return c.Sum("eventd_occurrences_settled_total", "outcome="+outcome)
}
func (c counters) written() float64 {
	return c.settled("created") + c.settled("merged") + c.settled("aggregated")
}

// wantConserved waits until nothing is pending and all recorded occurrences have
// settled, checks their number, and returns the metrics.
func (e *eventd) wantConserved(recorded int) counters {
	e.t.Helper()
	var c counters
	// While an occurrence moves between stages, it is in neither for a moment.
	await.Until(e.t, "nothing to be pending", func() bool {
		c = e.counters()
		return c.pending() == 0 && c.Sum("eventd_occurrences_settled_total") == c.recorded()
	})
	if c.recorded() != float64(recorded) {
		e.t.Errorf("recorded %v occurrences, want %d", c.recorded(), recorded)
	}
	return c
}

// wantWritten waits until nothing is pending, and checks that all reported
// occurrences are written. A PATCH that overtakes the POST of its Event reports that
// one's occurrences, too, which settle as replayed.
func (e *eventd) wantWritten(reported int) {
	e.t.Helper()
	var c counters
	await.Until(e.t, fmt.Sprint(reported, " occurrences to be written, and nothing to be pending"), func() bool {
		c = e.counters()
		return c.written() >= float64(reported) && c.pending() == 0
	})
	if replayed := c.settled("replayed"); c.written() != float64(reported) || c.recorded() != c.written()+replayed {
		e.t.Errorf("recorded %v, of which %v are written and %v replayed; %d were reported", c.recorded(), c.written(), replayed, reported)
	}
}

// wantStored checks that each object has one Event with its count, and that there are
// no others.
func (e *eventd) wantStored(namespace string, counts stored.Counts[string]) {
	e.t.Helper()
	stored.Want(e.t, counts, stored.List(e.t, e.cluster, namespace), func(e *corev1.Event) string { return e.InvolvedObject.Name })
}
