package main

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/eventd/eventd/pkg/correlator"
	"github.com/eventd/eventd/pkg/occurrence"
)

// correlating compares what is decided on one Event. The Events are made
// beforehand. client-go's decision includes the patch that it would send; ours
// does not, since our patches are made in the sink, one for each write.
// client-go's spam filter is opened: a repeat that it refuses does no work.
func correlating() []comparison {
	repeats := []*corev1.Event{event("web-0", "")}
	// More than either side remembers, so that each is new when its turn comes
	// again.
	var distinct []*corev1.Event
	for i := range 4 * correlator.DefaultOptions().CacheSize {
		distinct = append(distinct, event(fmt.Sprint("web-", i), ""))
	}
	// One pass over these is a storm from its beginning, in turn over all
	// objects: client-go combines the tenth message of an object and all after
	// it into one Event.
	const objects, messages = 100, 50
	var similar []*corev1.Event
	for message := range messages {
		for object := range objects {
			similar = append(similar, event(fmt.Sprint("web-", object), fmt.Sprint(": attempt ", message)))
		}
	}
	return []comparison{
		{
			work: "correlate a repeat", occurrences: 1, goal: goal{ratio: 1. / 200},
			clientGo: eachByClientGo(repeats), eventd: eachByEventd(repeats),
		},
		{
			work: "correlate a new series", occurrences: 1, goal: goal{ratio: 1. / 10, allocs: 4},
			clientGo: eachByClientGo(distinct), eventd: eachByEventd(distinct),
		},
		{
			work:        fmt.Sprintf("correlate %d similar of each of %d objects", messages, objects),
			occurrences: len(similar),
			clientGo:    passesByClientGo(similar), eventd: passesByEventd(similar),
		},
	}
}

func event(object, detail string) *corev1.Event {
	now := metav1.Now()
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: object + ".17a2b3c4d5e6f708"},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: "v1", Kind: "Pod", Namespace: "default", Name: object,
			UID: "0a1b2c3d-0000-1111-2222-333344445555", ResourceVersion: "12345", FieldPath: "spec.containers{app}",
		},
		Reason: "BackOff", Message: "Back-off restarting failed container app in pod " + object + detail, Type: "Warning",
		Source:              corev1.EventSource{Component: "kubelet", Host: "node-1"},
		ReportingController: "kubelet", ReportingInstance: "node-1",
		Count: 1, FirstTimestamp: now, LastTimestamp: now,
	}
}

func newClientGo() *record.EventCorrelator {
	return record.NewEventCorrelatorWithOptions(record.CorrelatorOptions{
		BurstSize: 1 << 30, QPS: 1 << 20, Clock: clock.RealClock{},
	})
}

func newEventd(b *testing.B) *correlator.Correlator {
	c, err := correlator.New(correlator.DefaultOptions())
	if err != nil {
		b.Fatal(err)
	}
	return c
}

func correlateByClientGo(b *testing.B, c *record.EventCorrelator, e *corev1.Event) {
	if result, err := c.EventCorrelate(e); err != nil || result.Skip {
		b.Fatal("client-go did no work: ", err)
	}
}

// begin is how many of the Events are correlated beforehand: enough to fill what
// each side remembers.
func begin(events []*corev1.Event) int { return (len(events) + 1) / 2 }

// eachByClientGo correlates one Event after the other, over and over.
func eachByClientGo(events []*corev1.Event) func(*testing.B) {
	return func(b *testing.B) {
		c := newClientGo()
		seen := begin(events)
		for _, e := range events[:seen] {
			correlateByClientGo(b, c, e)
		}
		b.ReportAllocs()
		b.ResetTimer()
		for i := range b.N {
			correlateByClientGo(b, c, events[(seen+i)%len(events)])
		}
	}
}

func eachByEventd(events []*corev1.Event) func(*testing.B) {
	return func(b *testing.B) {
		c := newEventd(b)
		o := occurrence.Occurrence{Weight: 1}
		seen := begin(events)
		for _, o.Event = range events[:seen] {
			c.Correlate(&o, time.Now())
		}
		b.ReportAllocs()
		b.ResetTimer()
		for i := range b.N {
			o.Event = events[(seen+i)%len(events)]
			c.Correlate(&o, time.Now())
		}
	}
}

// passesByClientGo correlates all Events once per operation, each time with a
// correlator that has seen none.
func passesByClientGo(events []*corev1.Event) func(*testing.B) {
	return func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			b.StopTimer()
			c := newClientGo()
			b.StartTimer()
			for _, e := range events {
				correlateByClientGo(b, c, e)
			}
		}
	}
}

func passesByEventd(events []*corev1.Event) func(*testing.B) {
	return func(b *testing.B) {
		b.ReportAllocs()
		o := occurrence.Occurrence{Weight: 1}
		for range b.N {
			b.StopTimer()
			c := newEventd(b)
			b.StartTimer()
			for _, o.Event = range events {
				c.Correlate(&o, time.Now())
			}
		}
	}
}
