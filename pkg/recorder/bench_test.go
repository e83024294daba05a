package recorder

import (
	"sync"
	"testing"

	"k8s.io/client-go/kubernetes/scheme"

	"github.com/eventd/eventd/pkg/broadcaster"
	"github.com/eventd/eventd/pkg/ledger"
	"github.com/eventd/eventd/pkg/occurrence"
)

// nowhere drops what is published.
type nowhere struct{}

func (nowhere) Publish(*occurrence.Occurrence) {}
func (nowhere) Refuse(occurrence.Reason)       {}

func BenchmarkEventf(b *testing.B) {
	r := New(nowhere{}, scheme.Scheme, source)
	b.ReportAllocs()
	for b.Loop() {
		r.Eventf(pod, "Warning", "BackOff", "back-off restarting container %s", "app")
	}
}

func BenchmarkNewStyleEventf(b *testing.B) {
	r := NewEvents(nowhere{}, occurrence.EventsV1, scheme.Scheme, "example.com/controller")
	b.ReportAllocs()
	for b.Loop() {
		r.Eventf(pod, nil, "Warning", "BackOff", "Restarting", "back-off restarting container %s", "app")
	}
}

// Many goroutines record into one queue; what does not fit is dropped.
func BenchmarkParallelEventf(b *testing.B) {
	broadcast := broadcaster.New(ledger.New())
	subscriber, err := broadcast.Subscribe(broadcaster.SubscribeOptions{Capacity: broadcaster.DefaultCapacity, Ledger: ledger.New()})
	if err != nil {
		b.Fatal(err)
	}
	var subscribed sync.WaitGroup
	subscribed.Go(func() {
		for _, ok := subscriber.Receive(); ok; _, ok = subscriber.Receive() {
		}
	})
	r := New(broadcast, scheme.Scheme, source)
	b.ReportAllocs()
	b.SetParallelism(8)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			r.Eventf(pod, "Warning", "BackOff", "back-off restarting container %s", "app")
		}
	})
	broadcast.Shutdown()
	subscribed.Wait()
}
