package pipeline_test

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/record"

	"github.com/eventd/eventd/pkg/pipeline"
	"github.com/eventd/eventd/pkg/sink"
)

// In a controller that uses client-go's tools/record, only the constructor changes.
func ExampleNewRecordBroadcaster() {
	client := fake.NewClientset() // kubernetes.NewForConfig, in a controller
	ctx := context.Background()

	// Before: broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	var broadcaster record.EventBroadcaster = pipeline.NewRecordBroadcaster(pipeline.WithContext(ctx))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	recorder := broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "my-controller"})

	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-0"}}
	for range 3 {
		recorder.Eventf(pod, corev1.EventTypeWarning, "BackOff", "back-off restarting container %s", "app")
	}
	broadcaster.Shutdown()

	list, _ := client.CoreV1().Events("shop").List(ctx, metav1.ListOptions{})
	for _, event := range list.Items {
		fmt.Println(event.Reason, event.Message, event.Count)
	}
	// Output: BackOff back-off restarting container app 3
}

// In a controller that uses client-go's tools/events, only the constructor changes.
func ExampleNewEventsBroadcaster() {
	client := fake.NewClientset()
	ctx := context.Background()

	// Before: broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	broadcaster := pipeline.NewEventsBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		fmt.Println(err)
	}
	recorder := broadcaster.NewRecorder(scheme.Scheme, "example.com/my-controller")

	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-0"}}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}
	recorder.Eventf(pod, node, corev1.EventTypeNormal, "Scheduled", "Binding", "assigned to %s", node.Name)
	broadcaster.Shutdown()

	list, _ := client.EventsV1().Events("shop").List(ctx, metav1.ListOptions{})
	for _, event := range list.Items {
		fmt.Println(event.Reason, event.Action, event.Note, event.Related.Name)
	}
	// Output: Scheduled Binding assigned to node-1 node-1
}

// Watchers receive every Event, before it is written. They share it, so they do not change it.
func ExampleRecordBroadcaster_StartEventWatcher() {
	broadcaster := pipeline.NewRecordBroadcaster()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: fake.NewClientset().CoreV1().Events("")})
	broadcaster.StartEventWatcher(func(event *corev1.Event) {
		fmt.Println(event.Type, event.Reason, event.InvolvedObject.Name)
	})
	recorder := broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "my-controller"})

	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-0"}}
	recorder.Event(pod, corev1.EventTypeNormal, "Started", "all containers are running")
	broadcaster.Shutdown()
	// Output: Normal Started web-0
}

// The error reports the occurrences that were not written before the context ended.
func ExampleRecordBroadcaster_ShutdownWithContext() {
	client := fake.NewClientset()
	broadcaster := pipeline.NewRecordBroadcaster()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})

	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := broadcaster.ShutdownWithContext(ctx); err != nil {
		fmt.Println("Events are lost:", err)
	}
	// Output:
}

// New-style Events, written with rights in core/v1 only.
func ExampleRecordBroadcaster_NewEventsRecorder() {
	client := fake.NewClientset()
	broadcaster := pipeline.NewRecordBroadcaster()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	recorder := broadcaster.NewEventsRecorder(scheme.Scheme, "example.com/my-controller")

	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-0"}}
	recorder.Eventf(pod, nil, corev1.EventTypeNormal, "Resized", "Resizing", "to %d replicas", 3)
	broadcaster.Shutdown()

	list, _ := client.CoreV1().Events("shop").List(context.Background(), metav1.ListOptions{})
	for _, event := range list.Items {
		fmt.Println(event.Reason, event.Action, event.Message)
	}
	// Output: Resized Resizing to 3 replicas
}

// With sink.ConfigFor, Events have a connection of their own.
func ExampleNewRecordBroadcaster_connection() {
	config := &rest.Config{Host: "https://localhost"} // rest.InClusterConfig, in a controller
	client, err := kubernetes.NewForConfig(sink.ConfigFor(config))
	if err != nil {
		fmt.Println(err)
		return
	}
	broadcaster := pipeline.NewRecordBroadcaster()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	broadcaster.Shutdown()
	// Output:
}

// What is recorded is reported to the eventd of the cluster, which correlates and writes it.
func ExampleRecordBroadcaster_StartRecordingToEventd() {
	config := &rest.Config{Host: "https://eventd.kube-system.svc", BearerTokenFile: "/var/run/secrets/kubernetes.io/serviceaccount/token"}
	config.CAFile = "/etc/eventd-ca/ca.crt" // of the ConfigMap eventd-serving-ca
	broadcaster := pipeline.NewRecordBroadcaster()
	broadcaster.StartRecordingToEventd(config)
	recorder := broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "my-controller"})

	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-0"}}
	recorder.Event(pod, corev1.EventTypeNormal, "Started", "all containers are running")
	broadcaster.Shutdown()
}
