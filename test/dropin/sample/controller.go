package sample

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
)

// Controller records Events of pods with both kinds of client-go's recorders.
type Controller struct {
	broadcaster       record.EventBroadcaster
	eventsBroadcaster events.EventBroadcaster
	recorder          record.EventRecorderLogger
	eventsRecorder    events.EventRecorderLogger
}

// New starts recording.
func New(ctx context.Context, client kubernetes.Interface) (*Controller, error) {
	broadcaster := newBroadcaster(withContext(ctx), withCorrelator(record.CorrelatorOptions{BurstSize: 100}))
	broadcaster.StartStructuredLogging(4)
	broadcaster.StartLogging(func(string, ...any) {})
	broadcaster.StartEventWatcher(func(*corev1.Event) {})
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})

	eventsBroadcaster := newEventsBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	if _, err := eventsBroadcaster.StartLogging(klog.FromContext(ctx).V(4)); err != nil {
		return nil, fmt.Errorf("start logging: %w", err)
	}
	if err := eventsBroadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		return nil, fmt.Errorf("start recording: %w", err)
	}
	return &Controller{
		broadcaster:       broadcaster,
		eventsBroadcaster: eventsBroadcaster,
		recorder:          broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "sample-controller"}),
		eventsRecorder:    eventsBroadcaster.NewRecorder(scheme.Scheme, "example.com/sample-controller"),
	}, nil
}

// Reconcile records Events, and does nothing else.
func (c *Controller) Reconcile(ctx context.Context, pod *corev1.Pod) {
	recorder := c.recorder.WithLogger(klog.FromContext(ctx))
	recorder.Event(pod, corev1.EventTypeNormal, "Reconciled", "all is well")
	recorder.AnnotatedEventf(pod, map[string]string{"example.com/by": "sample"}, corev1.EventTypeWarning, "Slow", "took %d s", 7)
	c.eventsRecorder.WithLogger(klog.FromContext(ctx)).Eventf(pod, nil, corev1.EventTypeNormal, "Reconciled", "Reconciling", "all is %s", "well")
}

// Stop ends recording.
func (c *Controller) Stop() {
	c.broadcaster.Shutdown()
	c.eventsBroadcaster.Shutdown()
}
