package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	"github.com/eventd/eventd/hack/bench/internal/timing"
)

// load is what is recorded, one occurrence about each of the objects, over a
// time. Each is a series and a subject of its own.
type load struct {
	objects []*corev1.Pod
	over    time.Duration
}

// loadNamespaces is the number of namespaces of most loads: eventd does not give its
// whole concurrency to one.
const loadNamespaces = 4

// spread makes a load of n objects that takes the namespaces in turn.
func spread(namespaces []string, n int, over time.Duration) load {
	l := load{objects: make([]*corev1.Pod, n), over: over}
	for i := range l.objects {
		l.objects[i] = podIn(namespaces[i%len(namespaces)], i)
	}
	return l
}

func podIn(namespace string, number int) *corev1.Pod {
	name := fmt.Sprintf("web-5d8f9c7b4-%05d", number)
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, ResourceVersion: "12345",
		UID: types.UID(fmt.Sprintf("0a1b2c3d-0000-1111-2222-%012d", number)),
	}}
}

func report(r record.EventRecorder, pod *corev1.Pod) {
	r.Eventf(pod, corev1.EventTypeNormal, "Benched", "Back-off restarting failed container app in pod %s", pod.Name)
}

// record reports about every object, or returns the cause of ctx.
func (l load) record(ctx context.Context, r record.EventRecorder) error {
	return timing.Paced(ctx, len(l.objects), l.over, func(i int) { report(r, l.objects[i]) })
}
