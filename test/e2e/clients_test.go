package e2e

import (
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/record"

	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/replica"
	"github.com/eventd/eventd/test/stored"
	"github.com/eventd/eventd/test/testenv"
)

func pod(namespace, name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "uid"}}
}

func clientset(t *testing.T, config *rest.Config) *kubernetes.Clientset {
	t.Helper()
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// classicRecorder is a client-go recorder of tools/record without its spam filter and
// aggregation. Its queue has places for 1,000 Events.
func classicRecorder(t *testing.T, config *rest.Config) record.EventRecorder {
	t.Helper()
	broadcaster := record.NewBroadcaster(
		record.WithCorrelatorOptions(record.CorrelatorOptions{BurstSize: 1_000_000, QPS: 1_000_000, MaxEvents: 1_000_000}),
		record.WithSleepDuration(100*time.Millisecond), // between its own retries
	)
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: clientset(t, config).CoreV1().Events("")})
	t.Cleanup(broadcaster.Shutdown)
	return broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "e2e", Host: "node-1"})
}

// newStyleRecorder is a client-go recorder of tools/events.
func newStyleRecorder(t *testing.T, config *rest.Config) events.EventRecorder {
	t.Helper()
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: clientset(t, config).EventsV1()})
	t.Cleanup(broadcaster.Shutdown)
	if err := broadcaster.StartRecordingToSinkWithContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	return broadcaster.NewRecorder(scheme.Scheme, "e2e")
}

func TestUnmodifiedClassicRecorder(t *testing.T) {
	const distinct, repeats = 150, 750
	e := startEventd(t)
	config, namespace := e.newReporter()
	recorder := classicRecorder(t, config)
	want := stored.Counts[string]{"repeated": repeats}
	for i := range distinct {
		object := fmt.Sprint("distinct-", i)
		recorder.Eventf(pod(namespace, object), "Normal", "Tested", "%s was tested", object)
		want[object] = 1
		for range repeats / distinct {
			recorder.Eventf(pod(namespace, "repeated"), "Normal", "Tested", "again")
		}
	}
	e.wantWritten(repeats + distinct)
	e.wantStored(namespace, want)
	e.Terminate(t)
}

func TestUnmodifiedNewStyleRecorder(t *testing.T) {
	const distinct = 200
	e := startEventd(t)
	config, namespace := e.newReporter()
	config.QPS = -1
	recorder := newStyleRecorder(t, config)
	want := stored.Counts[string]{}
	for range 2 {
		for i := range distinct {
			object := fmt.Sprint("pod-", i)
			recorder.Eventf(pod(namespace, object), nil, "Normal", "Tested", "Testing", "%s was tested", object)
			want[object]++
		}
	}
	e.wantWritten(2 * distinct)
	e.wantStored(namespace, want)
	e.Terminate(t)
}

// Counts are exact with any number of writers.
func TestTwoEventdsCountTheSameSeries(t *testing.T) {
	const clients, each = 10, 20
	shared := testenv.Shared(t)
	namespace := shared.Namespace(t)
	credentials := replica.Reporter(t, shared, namespace)
	both := []*eventd{startEventd(t), startEventd(t)}
	var posting sync.WaitGroup
	for i := range clients * len(both) {
		c := clientset(t, both[i%len(both)].Config(credentials)).CoreV1().Events(namespace)
		posting.Go(func() {
			for n := range each {
				name := fmt.Sprintf("posted.%d.%d", i, n)
				answer, err := c.Create(t.Context(), replica.Event(namespace, name, "shared"), metav1.CreateOptions{})
				if err != nil {
					t.Errorf("%s: %v", name, err)
					return
				}
				if answer.Name != name || answer.Count != 1 || answer.UID == "" {
					t.Errorf("%s is answered as %s with a count of %d", name, answer.Name, answer.Count)
				}
			}
		})
	}
	posting.Wait()
	for _, e := range both {
		e.wantWritten(clients * each)
	}
	both[0].wantStored(namespace, stored.Counts[string]{"shared": int64(len(both)) * clients * each})
	for _, e := range both {
		e.Terminate(t)
	}
}

// client-go's recorder continues to patch the name that it posted. The next eventd does
// not have that name, and gets the whole count again.
func TestSelfCountingClientContinuesAfterACrash(t *testing.T) {
	const before, after = 7, 5
	// The client keeps its address, so the next eventd must have the same one, and the
	// same certificate.
	again := []string{"--cert-dir=" + t.TempDir(), "--secure-port=" + freePort(t)}
	e := startEventd(t, again...)
	config, namespace := e.newReporter()
	recorder := classicRecorder(t, config)
	record := func(n, recorded int) {
		for range n {
			recorder.Event(pod(namespace, "repeated"), "Normal", "Tested", "again")
		}
		await.Until(t, "the reports", func() bool { return e.counters().recorded() >= float64(recorded) })
	}
	record(before, before)
	e.Kill()
	e = startEventd(t, again...)
	record(after, before+after)
	// The first eventd has written some occurrences, and has lost the deferred ones: the
	// client reports those again, too.
	c := e.wantConserved(before + after)
	if replayed := c.settled("replayed"); replayed < 1 || replayed+c.written() != before+after {
		t.Errorf("%v replayed and %v written of %d", replayed, c.written(), before+after)
	}
	e.wantStored(namespace, stored.Counts[string]{"repeated": before + after})
	e.Terminate(t)
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}
