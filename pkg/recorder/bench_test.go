package recorder

import (
	"testing"

	"k8s.io/client-go/kubernetes/scheme"

	"github.com/eventd/eventd/internal/occurrence"
)

// nowhere takes occurrences and keeps none.
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
