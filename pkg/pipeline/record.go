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

// RecordBroadcaster is client-go's record.EventBroadcaster on eventd's stations.
// It is safe for use by many goroutines. Make it with NewRecordBroadcaster; it
// ends with its context, Shutdown, or ShutdownWithContext.
type RecordBroadcaster struct{ stations *stations }

var _ record.EventBroadcaster = &RecordBroadcaster{}

// NewRecordBroadcaster takes the place of record.NewBroadcaster. What is recorded
// before a sink is started is counted as dropped.
func NewRecordBroadcaster(opts ...BroadcasterOption) *RecordBroadcaster {
	return &RecordBroadcaster{newStations(configure("record", opts))}
}

// StartRecordingToSink begins to write to a sink what is recorded from now on,
// and returns what stops it; what is owed then is written within DrainTimeout.
// There may be several sinks, each with a ledger of its own.
//
// Of client-go's own EventSinkImpl the client is used, and every promise of the
// package holds; the client needs the rights to create and patch events. If it
// has a rate limit of its own, the sink uses a half of it. Any other sink gets
// Create and Patch calls with whole Events: see docs/library.md for what can be
// promised then. A second EventSinkImpl for the same apiserver joins the first,
// since two would count everything twice there: controller-runtime starts one
// for each of its recorder providers.
//
// As in client-go, an error is logged, and what is returned has ended.
func (b *RecordBroadcaster) StartRecordingToSink(to record.EventSink) watch.Interface {
	target, err := recordTarget(to, b.stations.habits, b.stations.options.Sink)
	if err != nil {
		return b.failed(err)
	}
	return b.orFailed(b.stations.write(target))
}

// StartEventWatcher hands every Event that is recorded from now on to the
// handler, in a goroutine of its own, and returns what stops it. Its channel
// delivers nothing, and is closed when the handler gets no more. Each Event is
// the handler's own, under the name that it has in the apiserver unless it is
// combined with others. A panic of the handler is counted, and it goes on with
// the next Event.
func (b *RecordBroadcaster) StartEventWatcher(eventHandler func(*corev1.Event)) watch.Interface {
	return b.orFailed(b.stations.watch(eventHandler))
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
	logger := klog.FromContext(b.stations.ctx).V(int(verbosity))
	return b.StartEventWatcher(func(e *corev1.Event) {
		logger.Info("Event occurred", "object", klog.KRef(e.InvolvedObject.Namespace, e.InvolvedObject.Name),
			"fieldPath", e.InvolvedObject.FieldPath, "kind", e.InvolvedObject.Kind, "apiVersion", e.InvolvedObject.APIVersion,
			"type", e.Type, "reason", e.Reason, "message", e.Message)
	})
}

// NewRecorder returns a recorder of classic Events for the given source.
func (b *RecordBroadcaster) NewRecorder(scheme *runtime.Scheme, source corev1.EventSource) record.EventRecorderLogger {
	return recorder.New(b.stations.broadcaster, scheme, source).WithRepairs(b.stations.repairs)
}

// NewEventsRecorder returns a recorder of new-style Events, as an
// events.EventBroadcaster makes them, but written through core/v1: who may
// create and patch events there needs no further rights. client-go's own way to
// this, record.NewEventRecorderAdapter, loses the related object and the action.
func (b *RecordBroadcaster) NewEventsRecorder(scheme *runtime.Scheme, reportingController string) events.EventRecorderLogger {
	return recorder.NewEvents(b.stations.broadcaster, occurrence.CoreV1, scheme, reportingController).WithRepairs(b.stations.repairs)
}

// Shutdown takes nothing more, and goes on delivering what was recorded for at
// most DrainTimeout. What could not be delivered by then is counted, and logged
// in one line. Recording goes on to be safe, and is counted as dropped.
func (b *RecordBroadcaster) Shutdown() { b.stations.shutdownInTime() }

// ShutdownWithContext is Shutdown until the context ends. The error, if any, is
// an *UndeliveredError. If several shutdowns run at once, the one with the most
// time decides when to give up.
func (b *RecordBroadcaster) ShutdownWithContext(ctx context.Context) error {
	return b.stations.shutdown(ctx)
}

func (b *RecordBroadcaster) orFailed(s *subscription, err error) watch.Interface {
	if err != nil {
		return b.failed(err)
	}
	return s
}

func (b *RecordBroadcaster) failed(err error) watch.Interface {
	klog.FromContext(b.stations.ctx).Error(err, "Unable to start a sink or watcher of Events", "broadcaster", b.stations.options.Name)
	return watch.NewEmptyWatch()
}
