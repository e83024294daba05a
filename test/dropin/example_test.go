package dropin_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/eventd/eventd/pkg/pipeline"
	"github.com/eventd/eventd/test/dropin"
)

// The manager gets the broadcaster as an option, and controllers get the wrapped
// manager. Both kinds of recorders then write through one sink.
func ExampleManager() {
	config := &rest.Config{Host: "https://localhost"} // ctrl.GetConfigOrDie, in a controller
	client := fake.NewClientset()                     // kubernetes.NewForConfig(sink.ConfigFor(config))

	broadcaster := pipeline.NewRecordBroadcaster()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	//lint:ignore SA1019 controller-runtime has no other option for a broadcaster
	made, err := ctrl.NewManager(config, ctrl.Options{EventBroadcaster: broadcaster})
	if err != nil {
		fmt.Println(err)
		return
	}
	manager := dropin.Manager{Manager: made, Broadcaster: broadcaster} // for SetupWithManager

	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-0"}}
	recorder := manager.GetEventRecorder("example.com/my-controller")
	recorder.Eventf(pod, nil, corev1.EventTypeNormal, "Resized", "Resizing", "to %d replicas", 3)
	if err := broadcaster.ShutdownWithContext(context.Background()); err != nil { // after manager.Start
		fmt.Println(err)
	}

	list, _ := client.CoreV1().Events("shop").List(context.Background(), metav1.ListOptions{})
	for _, event := range list.Items {
		fmt.Println(event.Reason, event.Action, event.Message)
	}
	// Output: Resized Resizing to 3 replicas
}
