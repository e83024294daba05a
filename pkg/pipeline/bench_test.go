package pipeline

import (
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/pkg/broadcaster"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/trail"
	"github.com/eventd/eventd/test/await"
)

// What an occurrence costs from its record to its outcome, in this process: repeats of 100 series, of which many are
// written together.
//
//	go test ./pkg/pipeline -run - -bench . -count 6
func BenchmarkPipeline(b *testing.B) {
	b.Run("without a trail", func(b *testing.B) { benchmarkPipeline(b, nil) })
	b.Run("with a trail", func(b *testing.B) {
		to, err := trail.New(trail.Options{})
		if err != nil {
			b.Fatal(err)
		}
		benchmarkPipeline(b, to)
	})
}

func benchmarkPipeline(b *testing.B, to Trail) {
	o := DefaultOptions()
	o.WhenFull, o.Trail = broadcaster.WaitWhenFull, to
	p, err := New(b.Context(), o)
	if err != nil {
		b.Fatal(err)
	}
	if err := p.StartSink(newMemoryServer(1, faults{})); err != nil {
		b.Fatal(err)
	}
	var events []*corev1.Event
	for i := range 100 {
		name := "web-" + strconv.Itoa(i)
		events = append(events, &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Namespace: "ns"},
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "ns", Name: name, UID: "5a8c2f64-6d0e-4a3b-9c1d-0e7f6a5b4c3d"},
			Source:         source, Type: "Warning", Reason: "BackOff", Message: "Back-off restarting failed container app in pod " + name,
		})
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		p.Record(&occurrence.Occurrence{Event: events[i%len(events)], Weight: 1, User: "system:node:one"})
	}
	b.StopTimer()
	ctx, cancel := await.Context(b)
	defer cancel()
	if err := p.Shutdown(ctx); err != nil {
		b.Fatal(err)
	}
}
