package pipeline

import (
	"context"
	"errors"
	"sync"

	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"

	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/recorder"
)

// EventsBroadcaster implements events.EventBroadcaster of client-go's tools/events. It is
// safe for use by many goroutines. Make it with NewEventsBroadcaster; end it with
// Shutdown, ShutdownWithContext, or the end of its context.
type EventsBroadcaster struct {
	stages *stages
	sink   events.EventSink

	mu        sync.Mutex
	recording *subscription   // to the sink; nil before it is started
	until     context.Context // its end stops recording
}

var _ events.EventBroadcaster = &EventsBroadcaster{}

// NewEventsBroadcaster replaces events.NewBroadcaster.
//
// Of client-go's EventSinkImpl, only its client is used. The client needs the rights to
// create and patch events in events.k8s.io. If it is rate-limited, the sink uses half of
// the limit. Any other sink gets Create and Patch calls with whole Events; docs/library.md
// lists what is guaranteed then.
func NewEventsBroadcaster(sink events.EventSink, opts ...BroadcasterOption) *EventsBroadcaster {
	return &EventsBroadcaster{stages: newStages(configure("events", opts)), sink: sink}
}

// StartRecordingToSinkWithContext starts to write to the sink what is recorded from now on,
// until the context ends. What is pending then is written within DrainTimeout. It can be
// started again at once. It returns an error while it runs: every occurrence would be
// counted twice.
func (b *EventsBroadcaster) StartRecordingToSinkWithContext(ctx context.Context) error {
	target, err := eventsTarget(b.sink, b.stages.traits, b.stages.options.Sink)
	if err != nil {
		return err
	}
	return b.startRecording(ctx, target)
}

func (b *EventsBroadcaster) startRecording(ctx context.Context, target target) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.recording != nil {
		if b.until.Err() == nil {
			return errors.New("the broadcaster is already recording to its sink")
		}
		b.recording.Stop() // before the next one subscribes; it may still drain
	}
	recording, err := b.stages.write(target)
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
// Deprecated: Use StartRecordingToSinkWithContext, as in client-go.
func (b *EventsBroadcaster) StartRecordingToSink(stopCh <-chan struct{}) {
	if err := b.StartRecordingToSinkWithContext(wait.ContextForChannel(stopCh)); err != nil {
		klog.FromContext(b.stages.ctx).Error(err, "Could not start recording Events to a sink", "broadcaster", b.stages.options.Name)
	}
}

// NewRecorder returns a recorder of new-style Events for the given reporting controller.
func (b *EventsBroadcaster) NewRecorder(scheme *runtime.Scheme, reportingController string) events.EventRecorderLogger {
	return recorder.NewEvents(b.stages.broadcaster, occurrence.EventsV1, scheme, reportingController).WithRepairs(b.stages.repairs)
}

// StartEventWatcher calls the handler with every Event that is recorded from now on, as an
// *eventsv1.Event, in a goroutine of the watcher. As in client-go, all handlers share the
// Event: a handler that changes it must copy it before. The name is that of the stored Event,
// unless it is combined with others. Panics of the handler are recovered and counted. The returned function stops the watcher.
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
// Deprecated: Use StartLogging, as in client-go.
func (b *EventsBroadcaster) StartStructuredLogging(verbosity klog.Level) func() {
	logger := klog.FromContext(b.stages.ctx)
	stop, err := b.StartLogging(logger.V(int(verbosity)))
	if err != nil {
		logger.Error(err, "Could not start a watcher of Events", "broadcaster", b.stages.options.Name)
		return func() {}
	}
	return stop
}

func (b *EventsBroadcaster) watch(handle func(*eventsv1.Event)) (func(), error) {
	s, err := b.stages.watch(func(event *occurrence.Shared) { handle(event.EventsV1()) })
	if err != nil {
		return nil, err
	}
	return s.Stop, nil
}

// Shutdown stops recording, and delivers what is pending for at most DrainTimeout. The rest
// is dropped, counted, and logged in one line. Recording remains safe; what is recorded
// later is dropped.
func (b *EventsBroadcaster) Shutdown() { b.stages.shutdownInTime() }

// ShutdownWithContext is Shutdown with a context in place of DrainTimeout. It returns within
// a second after the end of the context. An error is an *UndeliveredError. With several
// concurrent shutdowns, delivery ends with the last context.
func (b *EventsBroadcaster) ShutdownWithContext(ctx context.Context) error {
	return b.stages.shutdown(ctx)
}
