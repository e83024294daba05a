package pipeline

import (
	"fmt"
	"runtime"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/eventd/eventd/pkg/sink"
	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/testenv"
)

// A broadcaster in front of a real apiserver takes few goroutines while there is nothing to write,
// its connection included, as client-go's does.
func TestIdleBroadcasterTakesFewGoroutines(t *testing.T) {
	const most = 4
	s := testenv.Shared(t)
	namespace := s.Namespace(t)
	client, err := kubernetes.NewForConfig(sink.ConfigFor(s.Config()))
	if err != nil {
		t.Fatal(err)
	}
	before := runtime.NumGoroutine()
	more := func() int { return runtime.NumGoroutine() - before }
	b := NewRecordBroadcaster()
	b.StartRecordingToSink(coreSink(client))
	if n := more(); n > most {
		t.Errorf("%d goroutines before anything is recorded", n)
	}
	r := b.NewRecorder(scheme.Scheme, source)
	for round := range 2 {
		for i := range 200 {
			r.Event(podIn(namespace, fmt.Sprint("web-", i, "-", round)), "Normal", "Tested", "")
		}
		await.Until(t, "the burst is written", func() bool { return ledgers(b)[0].Pending() == 0 })
		await.Until(t, "the workers have ended", func() bool { return more() <= most })
	}
	drain(t, b)
}
