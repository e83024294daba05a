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

func benchmark(b *testing.B, events []*corev1.Event, users ...string) {
	c, err := New(DefaultOptions())
	if err != nil {
		b.Fatal(err)
	}
	o := occurrence.Occurrence{Weight: 1}
	now := time.Now()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		o.Event = events[i%len(events)]
		if len(users) > 0 {
			o.User = users[i%len(users)]
		}
		c.Correlate(&o, now.Add(time.Duration(i)*time.Microsecond))
	}
}

func BenchmarkRepeat(b *testing.B) {
	benchmark(b, []*corev1.Event{about("web-0", "BackOff", "Back-off restarting failed container app in pod")})
}

func BenchmarkNewSeries(b *testing.B) {
	events := make([]*corev1.Event, 5000)
	for i := range events {
		events[i] = about(fmt.Sprint("web-", i), "BackOff", "Back-off restarting failed container app in pod")
	}
	benchmark(b, events)
}

// BenchmarkRepeatOfUsers has a full cache in which each subject has another tenant.
func BenchmarkRepeatOfUsers(b *testing.B) { benchmarkUsers(b, DefaultOptions().CacheSize) }

// BenchmarkNewSeriesOfUsers has each new subject evict another.
func BenchmarkNewSeriesOfUsers(b *testing.B) { benchmarkUsers(b, 5000) }

func benchmarkUsers(b *testing.B, n int) {
	events, users := make([]*corev1.Event, n), make([]string, n)
	for i := range n {
		events[i] = about(fmt.Sprint("web-", i), "BackOff", "Back-off restarting failed container app in pod")
		users[i] = fmt.Sprint("system:node:node-", i)
	}
	benchmark(b, events, users...)
}

func BenchmarkSimilar(b *testing.B) {
	var events []*corev1.Event
	for object := range 100 {
		for message := range 50 {
			events = append(events, about(fmt.Sprint("web-", object), "BackOff", fmt.Sprint("attempt ", message)))
		}
	}
	benchmark(b, events)
}
