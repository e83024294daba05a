// Package sinktest has what tests of the sink share: Events, a fake apiserver, and a network
// that fails.
package sinktest

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Event returns an Event of a Pod, of events.k8s.io if it is new-style.
func Event(newStyle bool) *corev1.Event {
	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: "ns"},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "ns", Name: "web-0"},
		Reason:         "Pulled", Message: "image pulled", Type: "Normal",
	}
	if newStyle {
		event.EventTime = metav1.NewMicroTime(time.Unix(1_700_000_000, 0))
	}
	return event
}

// Unnamed returns an Event of a namespace with a name that the apiserver chooses, which
// both APIs accept.
func Unnamed(namespace string, newStyle bool) *corev1.Event {
	event := Event(newStyle)
	event.Namespace, event.InvolvedObject.Namespace, event.GenerateName = namespace, namespace, "e-"
	event.ReportingController, event.ReportingInstance, event.Action = "example.com/test", "test-0", "Testing"
	return event
}
