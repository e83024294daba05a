package pipeline

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/recorder"
)

// RecordBroadcaster implements record.EventBroadcaster of client-go's tools/record. It is
// safe for use by many goroutines. Make it with NewRecordBroadcaster; end it with
// Shutdown, ShutdownWithContext, or the end of its context.
type RecordBroadcaster struct{ stages *stages }

var _ record.EventBroadcaster = &RecordBroadcaster{}

// NewRecordBroadcaster replaces record.NewBroadcaster. What is recorded before a sink is
// started is dropped and counted.
func NewRecordBroadcaster(opts ...BroadcasterOption) *RecordBroadcaster {
	return &RecordBroadcaster{newStages(configure("record", opts))}
}

// StartRecordingToSink starts to write to a sink what is recorded from now on. The returned
// Interface stops it; what is pending then is written within DrainTimeout. There may be
// several sinks, each with its own ledger.
//
// Of client-go's EventSinkImpl, only its client is used. The client needs the rights to
// create and patch events. If it is rate-limited, the sink uses half of the limit. Any other
// sink gets Create and Patch calls with whole Events; docs/library.md lists what is
// guaranteed then.
//
// A second EventSinkImpl for the same apiserver joins the first, so that nothing is counted
// twice: controller-runtime starts one for each recorder provider.
//
// As in client-go, an error is logged, and the returned Interface has ended.
func (b *RecordBroadcaster) StartRecordingToSink(to record.EventSink) watch.Interface {
	target, err := recordTarget(to, b.stages.traits, b.stages.options.Sink)
	if err != nil {
		return b.failed(err)
	}
	return b.orFailed(b.stages.write(target))
}

// StartEventWatcher calls the handler with every Event that is recorded from now on, in a
// goroutine of the watcher. As in client-go, all handlers share the Event: a handler that
// changes it must copy it before. Its name is that of the stored Event, unless it is combined
// with others. Panics of the handler are recovered and counted.
// The returned Interface stops the watcher; its channel delivers nothing, and is closed
// after the last call.
func (b *RecordBroadcaster) StartEventWatcher(eventHandler func(*corev1.Event)) watch.Interface {
	return b.orFailed(b.stages.watch(func(event *occurrence.Shared) { eventHandler(event.CoreV1()) }))
}

// StartLogging writes every Event that is recorded from now on through logf.
func (b *RecordBroadcaster) StartLogging(logf func(format string, args ...any)) watch.Interface {
	return b.StartEventWatcher(func(e *corev1.Event) {
		logf("Event(%#v): type: '%v' reason: '%v' %v", e.InvolvedObject, e.Type, e.Reason, e.Message)
	})
}

// StartStructuredLogging logs every Event that is recorded from now on, through
// the logger of the broadcaster's context.
func (b *RecordBroadcaster) StartStructuredLogging(verbosity klog.Level) watch.Interface {
	logger := klog.FromContext(b.stages.ctx).V(int(verbosity))
	return b.StartEventWatcher(func(e *corev1.Event) {
		logger.Info("Event occurred", "object", klog.KRef(e.InvolvedObject.Namespace, e.InvolvedObject.Name),
			"fieldPath", e.InvolvedObject.FieldPath, "kind", e.InvolvedObject.Kind, "apiVersion", e.InvolvedObject.APIVersion,
			"type", e.Type, "reason", e.Reason, "message", e.Message)
	})
}

// NewRecorder returns a recorder of classic Events for the given source.
func (b *RecordBroadcaster) NewRecorder(scheme *runtime.Scheme, source corev1.EventSource) record.EventRecorderLogger {
	return recorder.New(b.stages.broadcaster, scheme, source).WithRepairs(b.stages.repairs)
}

// NewEventsRecorder returns a recorder of new-style Events that are written through core/v1.
// So no rights in events.k8s.io are needed. client-go's record.NewEventRecorderAdapter loses
// the related object and the action.
func (b *RecordBroadcaster) NewEventsRecorder(scheme *runtime.Scheme, reportingController string) events.EventRecorderLogger {
	return recorder.NewEvents(b.stages.broadcaster, occurrence.CoreV1, scheme, reportingController).WithRepairs(b.stages.repairs)
}

// Shutdown stops recording, and delivers what is pending for at most DrainTimeout. The rest
// is dropped, counted, and logged in one line. Recording remains safe; what is recorded
// later is dropped.
func (b *RecordBroadcaster) Shutdown() { b.stages.shutdownInTime() }

// ShutdownWithContext is Shutdown with a context in place of DrainTimeout. It returns within
// a second after the end of the context. An error is an *UndeliveredError. With several
// concurrent shutdowns, delivery ends with the last context.
func (b *RecordBroadcaster) ShutdownWithContext(ctx context.Context) error {
	return b.stages.shutdown(ctx)
}

func (b *RecordBroadcaster) orFailed(s *subscription, err error) watch.Interface {
	if err != nil {
		return b.failed(err)
	}
	return s
}

func (b *RecordBroadcaster) failed(err error) watch.Interface {
	klog.FromContext(b.stages.ctx).Error(err, "Could not start a sink or watcher of Events", "broadcaster", b.stages.options.Name)
	return watch.NewEmptyWatch()
}
