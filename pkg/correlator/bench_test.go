package correlator

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/pkg/occurrence"
)

func about(object, reason, message string) *corev1.Event {
	e := &corev1.Event{
		InvolvedObject: corev1.ObjectReference{
			APIVersion: "v1", Kind: "Pod", Namespace: "default", Name: object,
			UID: "0a1b2c3d-0000-1111-2222-333344445555", ResourceVersion: "12345", FieldPath: "spec.containers{app}",
		},
		Reason: reason, Message: message, Type: "Warning",
		Source:              corev1.EventSource{Component: "kubelet", Host: "node-1"},
		ReportingController: "kubelet", ReportingInstance: "node-1",
	}
	e.Namespace = "default"
	return e
}

// BenchmarkCorrelate has streams that repeat a number of Events. The largest number is that of
// the subjects in a full cache; one more has each new subject evict another.
func BenchmarkCorrelate(b *testing.B) {
	const message = "Back-off restarting failed container app in pod"
	nobody := func(int) string { return "" }
	node := func(i int) string { return fmt.Sprint("system:node:node-", i) }
	one := func(i int) *corev1.Event { return about(fmt.Sprint("web-", i), "BackOff", message) }
	for _, c := range []struct {
		name   string
		events int
		event  func(i int) *corev1.Event
		user   func(i int) string
	}{
		{"repeat", 1, one, nobody},
		{"repeats of users", DefaultOptions().CacheSize, one, node},
		{"new series", DefaultOptions().CacheSize + 1, one, nobody},
		{"new series of users", DefaultOptions().CacheSize + 1, one, node},
		{"similar", 100 * 50, func(i int) *corev1.Event {
			return about(fmt.Sprint("web-", i/50), "BackOff", fmt.Sprint("attempt ", i%50))
		}, nobody},
	} {
		b.Run(c.name, func(b *testing.B) {
			occurrences := make([]occurrence.Occurrence, c.events)
			for i := range occurrences {
				occurrences[i] = occurrence.Occurrence{Weight: 1, Event: c.event(i), User: c.user(i)}
			}
			correlator, now := newStream(b, nil).Correlator, time.Now()
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				correlator.Correlate(&occurrences[i%c.events], now.Add(time.Duration(i)*time.Microsecond))
			}
		})
	}
}
