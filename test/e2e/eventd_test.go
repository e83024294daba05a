package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/eventd/eventd/test/replica"
	"github.com/eventd/eventd/test/testenv"
)

// deadline bounds every wait of these tests.
const deadline = 2 * time.Minute

// eventd is a running eventd.
type eventd struct {
	*replica.Replica
	t       *testing.T
	cluster *testenv.ControlPlane
}

// startEventd starts the binary as the ServiceAccount of deploy/, and waits
// until it serves.
func startEventd(t *testing.T, flags ...string) *eventd {
	t.Helper()
	started.Store(true)
	return startEventdFor(t, testenv.Shared(t), flags...)
}

func startEventdFor(t *testing.T, c *testenv.ControlPlane, flags ...string) *eventd {
	t.Helper()
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "eventd.kubeconfig")
	if err := testenv.WriteKubeconfig(kubeconfig, replica.Deploy(t, c)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := bounded(t)
	defer cancel()
	r, err := replica.Start(ctx, replica.Options{
		Kubeconfig: kubeconfig, Dir: dir,
		Flags: append([]string{"--leader-elect=false", "--kube-api-qps=unlimited"}, flags...),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.Kill()
		if t.Failed() {
			t.Logf("the last of eventd's log:\n%s", r.Log(20))
		}
	})
	return &eventd{r, t, c}
}

// signal sends a signal to the process and waits for its end.
func (e *eventd) signal(s os.Signal) (exitCode int) {
	e.t.Helper()
	ctx, cancel := bounded(e.t)
	defer cancel()
	code, err := e.Signal(ctx, s)
	if err != nil {
		e.t.Fatal(err)
	}
	return code
}

// terminate ends eventd in order, and it must have written everything.
func (e *eventd) terminate() {
	e.t.Helper()
	if code := e.signal(syscall.SIGTERM); code != 0 {
		e.t.Errorf("eventd ended with %d:\n%s", code, e.Log(20))
	}
}

// counters is what /metrics says.
type counters struct{ replica.Metrics }

// counters reads /metrics.
func (e *eventd) counters() counters {
	e.t.Helper()
	metrics, err := e.Metrics(e.t.Context(), e.cluster.Config())
	if err != nil {
		e.t.Fatal(err)
	}
	return counters{metrics}
}

func (c counters) recorded() float64 { return c.Sum("eventd_occurrences_recorded_total") }
func (c counters) pending() float64  { return c.Sum("eventd_occurrences_pending") }
func (c counters) written() float64 {
	return c.Sum("eventd_occurrences_settled_total", "outcome=created") +
		c.Sum("eventd_occurrences_settled_total", "outcome=merged") +
		c.Sum("eventd_occurrences_settled_total", "outcome=aggregated")
}

// wantConserved checks from the outside that everything is accounted for: once
// nothing is pending, all that was recorded has settled. It returns what was
// read, of the given number of recorded occurrences.
func (e *eventd) wantConserved(recorded int) counters {
	e.t.Helper()
	var c counters
	// Between two stations an occurrence is in neither for a moment.
	waitFor(e.t, "nothing to be pending", func() (bool, error) {
		c = e.counters()
		return c.pending() == 0 && c.Sum("eventd_occurrences_settled_total") == c.recorded(), nil
	})
	if c.recorded() != float64(recorded) {
		e.t.Errorf("recorded %v occurrences, want %d", c.recorded(), recorded)
	}
	return c
}

// wantWritten checks that so many occurrences were reported and all are written, once
// nothing is pending. A raise that overtakes the POST of its name reports that one's
// occurrences too: they settle as replayed, and are nobody else's.
func (e *eventd) wantWritten(reported int) {
	e.t.Helper()
	var c counters
	waitFor(e.t, fmt.Sprint(reported, " occurrences to be written, and nothing to be pending"), func() (bool, error) {
		c = e.counters()
		return c.written() >= float64(reported) && c.pending() == 0, nil
	})
	if replayed := c.Sum("eventd_occurrences_settled_total", "outcome=replayed"); c.written() != float64(reported) || c.recorded() != c.written()+replayed {
		e.t.Errorf("recorded %v, of which %v are written and %v replayed; %d were reported", c.recorded(), c.written(), replayed, reported)
	}
}

// finalAccounts is what eventd logs last of its ledger.
func (e *eventd) finalAccounts() replica.Accounts {
	e.t.Helper()
	accounts, err := e.FinalAccounts()
	if err != nil {
		e.t.Fatal(err)
	}
	return accounts
}

// waitFor polls a condition that has nothing to wait on.
func waitFor(t *testing.T, what string, condition func() (bool, error)) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	end := time.After(deadline)
	for {
		ok, err := condition()
		if err != nil {
			t.Fatalf("waiting for %s: %v", what, err)
		}
		if ok {
			return
		}
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("waited for %s in vain", what)
		}
	}
}

// stored lists the Events of a namespace, by the names of their objects.
func stored(t *testing.T, c *testenv.ControlPlane, namespace string) map[string][]corev1.Event {
	t.Helper()
	client, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	list, err := client.CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]corev1.Event{}
	for _, e := range list.Items {
		out[e.InvolvedObject.Name] = append(out[e.InvolvedObject.Name], e)
	}
	return out
}

// wantStored checks that each object has one Event with its count.
func wantStored(t *testing.T, c *testenv.ControlPlane, namespace string, counts map[string]int) {
	t.Helper()
	got := stored(t, c, namespace)
	for object, want := range counts {
		events := got[object]
		if len(events) != 1 {
			t.Errorf("%s has %d Events, want 1", object, len(events))
			continue
		}
		if n := count(&events[0]); n != want {
			t.Errorf("%s has a count of %d, want %d", object, n, want)
		}
	}
	if len(got) != len(counts) {
		t.Errorf("%d objects have Events, want %d", len(got), len(counts))
	}
}

// count is what a reader of an Event takes for its count.
func count(e *corev1.Event) int {
	switch {
	case e.Series != nil:
		return int(e.Series.Count)
	case !e.EventTime.IsZero():
		return 1
	default:
		return int(e.Count)
	}
}

// group runs functions at once and waits for them.
func group(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}

// bounded is the test's context with the deadline of all waits.
func bounded(t *testing.T) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), deadline)
}
