package main

import (
	"fmt"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"

	"github.com/eventd/eventd/pkg/pipeline"
)

// fanningOut compares the whole way from Eventf to the handlers of event
// watchers, in bursts: from the first Eventf until every handler has had all.
// Neither side drops any. The time of all goroutines is in it, and so is what
// differs in what is delivered: ours has the name that it will be stored under.
func fanningOut() []comparison {
	var out []comparison
	goals := map[int]goal{16: {ratio: 1, allocs: 8}}
	for _, subscribers := range []int{1, 4, 16} {
		out = append(out, comparison{
			work: fmt.Sprintf("fan-out to %d until all have it", subscribers), occurrences: burst, goal: goals[subscribers],
			clientGo: fanOut(func() record.EventBroadcaster { return record.NewBroadcaster() }, subscribers),
			eventd:   fanOut(func() record.EventBroadcaster { return pipeline.NewRecordBroadcaster() }, subscribers),
		})
	}
	return out
}

func fanOut(newBroadcaster func() record.EventBroadcaster, subscribers int) func(*testing.B) {
	return func(b *testing.B) {
		broadcaster := newBroadcaster()
		defer broadcaster.Shutdown()
		var handled sync.WaitGroup
		for range subscribers {
			broadcaster.StartEventWatcher(func(*corev1.Event) { handled.Done() })
		}
		eventf := classic(broadcaster.NewRecorder(scheme.Scheme, source))
		b.ReportAllocs()
		b.ResetTimer()
		for range b.N {
			handled.Add(burst * subscribers)
			for i := range burst {
				eventf(1000 + i)
			}
			wait(&handled)
		}
	}
}
