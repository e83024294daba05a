package main

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// version is one stored version of an Event of this run.
type version struct {
	event  int // from 1 on; 0 is a probe
	number int // among the versions of its Event, from 1 on
}

// message is the message of the version. A destination recognizes the version by it: not every side
// delivers the Event's resourceVersion.
func (v version) message() string {
	return fmt.Sprintf("Back-off restarting failed container app in pod web-5d8f9c7b4-%05d (%d/%d)", v.event, v.event, v.number)
}

// parseVersion returns the version with a message.
func parseVersion(message string) (v version, ok bool) {
	i := strings.LastIndexByte(message, '(')
	if i < 0 {
		return version{}, false
	}
	_, err := fmt.Sscanf(message[i:], "(%d/%d)", &v.event, &v.number)
	return v, err == nil && v.message() == message
}

// name is that of the Event. Probes are Events of their own.
func (v version) name() string {
	if v.event == 0 {
		return fmt.Sprintf("probe-%d", v.number)
	}
	return fmt.Sprintf("web-5d8f9c7b4-%05d.%d", v.event, v.event)
}

// kubelets is the percentage of Events from a kubelet, as in k/k#141022.
const kubelets = 91

// object is the Event with its first version.
func (v version) object(namespace string) *corev1.Event {
	now := metav1.Now()
	e := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v.name()},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: "v1", Kind: "Pod", Namespace: namespace, Name: fmt.Sprintf("web-5d8f9c7b4-%05d", v.event),
			UID: "0a1b2c3d-0000-4000-8000-000000000000", FieldPath: "spec.containers{app}",
		},
		Reason: "BackOff", Message: v.message(), Type: corev1.EventTypeWarning,
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
		Source: corev1.EventSource{Component: "kubelet", Host: fmt.Sprintf("node-%d", v.event%100)}, ReportingController: "kubelet",
	}
	if v.event%100 >= kubelets {
		e.Source, e.ReportingController = corev1.EventSource{Component: "replicaset-controller"}, "replicaset-controller"
	}
	return e
}

// patch makes this version of an earlier one, as a client with a repeat does.
func (v version) patch() []byte {
	return fmt.Appendf(nil, `{"count":%d,"lastTimestamp":%q,"message":%q}`, v.number, time.Now().UTC().Format(time.RFC3339), v.message())
}
