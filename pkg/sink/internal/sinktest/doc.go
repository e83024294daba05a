// Package sinktest has what tests of the sink share: a fake apiserver, a network that
// fails, and Events.
package sinktest

import (
	"testing"
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

// Eventually repeats try until it succeeds. After 30 seconds the test fails with the last
// error.
func Eventually(t *testing.T, try func() error) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal(err)
		}
	}
}
