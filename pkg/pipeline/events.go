package pipeline

import (
	"context"
	"errors"
	"sync"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/recorder"
)

// EventsBroadcaster is client-go's events.EventBroadcaster on eventd's stations.
// It is safe for use by many goroutines. Make it with NewEventsBroadcaster; it
// ends with its context, Shutdown, or ShutdownWithContext.
type EventsBroadcaster struct {
	stations *stations
	sink     events.EventSink

	mu        sync.Mutex
	recording *subscription   // to the sink; nil before it is started
	until     context.Context // the end of which stops it
}

var _ events.EventBroadcaster = &EventsBroadcaster{}

// NewEventsBroadcaster takes the place of events.NewBroadcaster. Of client-go's
// own EventSinkImpl the client is used, and every promise of the package holds;
// the client needs the rights to create and patch events in events.k8s.io. If it
// has a rate limit of its own, the sink uses a half of it. Any other sink gets Create and Patch calls with whole Events: see docs/library.md
// for what can be promised then.
func NewEventsBroadcaster(sink events.EventSink, opts ...BroadcasterOption) *EventsBroadcaster {
	return &EventsBroadcaster{stations: newStations(configure("events", opts)), sink: sink}
}

// StartRecordingToSinkWithContext begins to write to the sink what is recorded
// from now on, until the context ends; what is owed then is written within
// DrainTimeout. It may be started again at once: what was recorded meanwhile is
// counted as dropped. It is an error to start it while it runs: every occurrence
// would be counted twice.
func (b *EventsBroadcaster) StartRecordingToSinkWithContext(ctx context.Context) error {
	target, err := eventsTarget(b.sink, b.stations.habits, b.stations.options.Sink)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.recording != nil {
		if b.until.Err() == nil {
			return errors.New("the broadcaster is recording to its sink already")
		}
		b.recording.Stop() // before another one takes what is recorded; it may write on
	}
	recording, err := b.stations.write(target)
	if err != nil {
		return err
	}
	b.recording, b.until = recording, ctx
	context.AfterFunc(ctx, recording.Stop)
	return nil
}

// StartRecordingToSink is StartRecordingToSinkWithContext until the channel is
// closed. An error is logged.
//
// Deprecated: it is so in client-go.
func (b *EventsBroadcaster) StartRecordingToSink(stopCh <-chan struct{}) {
	if err := b.StartRecordingToSinkWithContext(wait.ContextForChannel(stopCh)); err != nil {
		klog.FromContext(b.stations.ctx).Error(err, "Unable to start recording Events to a sink", "broadcaster", b.stations.options.Name)
	}
}

// NewRecorder returns a recorder of new-style Events that reports as the given
// controller.
func (b *EventsBroadcaster) NewRecorder(scheme *runtime.Scheme, reportingController string) events.EventRecorderLogger {
	return recorder.NewEvents(b.stations.broadcaster, occurrence.EventsV1, scheme, reportingController).WithRepairs(b.stations.repairs)
}

// StartEventWatcher hands every Event that is recorded from now on to the
// handler, in a goroutine of its own, as an *eventsv1.Event that is the handler's
// own, under the name that it has in the apiserver unless it is combined with
// others. The function that it returns stops it. A panic of the handler is
// counted, and it goes on with the next.
func (b *EventsBroadcaster) StartEventWatcher(eventHandler func(event runtime.Object)) (func(), error) {
	return b.watch(func(event *eventsv1.Event) { eventHandler(event) })
}

// StartLogging logs every Event that is recorded from now on.
func (b *EventsBroadcaster) StartLogging(logger klog.Logger) (func(), error) {
	return b.watch(func(e *eventsv1.Event) {
		logger.Info("Event occurred", "object", klog.KRef(e.Regarding.Namespace, e.Regarding.Name), "kind", e.Regarding.Kind,
			"apiVersion", e.Regarding.APIVersion, "type", e.Type, "reason", e.Reason, "action", e.Action, "note", e.Note)
	})
}

// StartStructuredLogging is StartLogging through the logger of the broadcaster's
// context. An error is logged.
//
// Deprecated: it is so in client-go.
func (b *EventsBroadcaster) StartStructuredLogging(verbosity klog.Level) func() {
	logger := klog.FromContext(b.stations.ctx)
	stop, err := b.StartLogging(logger.V(int(verbosity)))
	if err != nil {
		logger.Error(err, "Unable to start a watcher of Events", "broadcaster", b.stations.options.Name)
		return func() {}
	}
	return stop
}

func (b *EventsBroadcaster) watch(handle func(*eventsv1.Event)) (func(), error) {
	s, err := b.stations.watch(func(event *corev1.Event) { handle(identity.ToEventsV1(event)) })
	if err != nil {
		return nil, err
	}
	return s.Stop, nil
}

// Shutdown takes nothing more, and goes on delivering what was recorded for at
// most DrainTimeout. What could not be delivered by then is counted, and logged
// in one line. Recording goes on to be safe, and is counted as dropped.
func (b *EventsBroadcaster) Shutdown() { b.stations.shutdownInTime() }

// ShutdownWithContext is Shutdown until the context ends. The error, if any, is
// an *UndeliveredError. If several shutdowns run at once, the one with the most
// time decides when to give up.
func (b *EventsBroadcaster) ShutdownWithContext(ctx context.Context) error {
	return b.stations.shutdown(ctx)
}
