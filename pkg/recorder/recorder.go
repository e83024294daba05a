// Package recorder makes occurrences out of what a process reports, and hands
// them on.
//
// Recording never waits, never panics and never fails towards its caller: what
// cannot become an Event is counted as dropped. All types are safe for use by
// many goroutines, before anything is started and after everything was shut
// down. The package starts no goroutines.
package recorder

import (
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/tools/record/util"
	"k8s.io/client-go/tools/reference"
	"k8s.io/klog/v2"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/internal/occurrence"
)

// Publisher takes occurrences. It must not block.
type Publisher interface {
	Publish(*occurrence.Occurrence)
	// Refuse counts an occurrence that did not become an Event.
	Refuse(occurrence.Reason)
}

// Record stamps an occurrence that a source made and publishes it. Unless the
// source knows better, the series is that of the Event.
func Record(p Publisher, o *occurrence.Occurrence) {
	o.Recorded = time.Now()
	if o.Digest == (identity.Digest{}) {
		id := identity.Of(o.Event)
		o.Digest = id.Digest()
	}
	p.Publish(o)
}

// Recorder is client-go's record.EventRecorderLogger.
type Recorder struct {
	publisher Publisher
	scheme    *runtime.Scheme
	source    corev1.EventSource
	logger    klog.Logger
}

var _ record.EventRecorderLogger = &Recorder{}

// New returns a recorder for the given source. The scheme resolves references
// to objects that do not carry their kind.
func New(p Publisher, scheme *runtime.Scheme, source corev1.EventSource) *Recorder {
	return &Recorder{publisher: p, scheme: scheme, source: source, logger: klog.Background()}
}

// WithLogger returns a recorder that logs through the given logger.
func (r *Recorder) WithLogger(logger klog.Logger) record.EventRecorderLogger {
	c := *r
	c.logger = logger
	return &c
}

// Event records that something happened to an object.
func (r *Recorder) Event(object runtime.Object, eventtype, reason, message string) {
	r.record(object, nil, eventtype, reason, message)
}

// Eventf is Event with a formatted message. Arguments whose methods panic are
// shown as fmt shows them.
func (r *Recorder) Eventf(object runtime.Object, eventtype, reason, messageFmt string, args ...any) {
	r.record(object, nil, eventtype, reason, fmt.Sprintf(messageFmt, args...))
}

// AnnotatedEventf is Eventf with annotations on the Event.
func (r *Recorder) AnnotatedEventf(object runtime.Object, annotations map[string]string, eventtype, reason, messageFmt string, args ...any) {
	r.record(object, annotations, eventtype, reason, fmt.Sprintf(messageFmt, args...))
}

func (r *Recorder) record(object runtime.Object, annotations map[string]string, eventtype, reason, message string) {
	ref, err := r.reference(object)
	if err != nil {
		r.logger.V(4).Info("Event not recorded: no reference to its object", "reason", reason, "err", err)
		r.publisher.Refuse(occurrence.Malformed)
		return
	}
	if !util.ValidateEventType(eventtype) {
		r.logger.V(4).Info("Event not recorded: unknown type", "reason", reason, "type", eventtype)
		r.publisher.Refuse(occurrence.Malformed)
		return
	}
	now := metav1.Now()
	namespace := ref.Namespace
	if namespace == "" {
		// Where the apiserver wants classic Events of cluster-scoped objects.
		namespace = metav1.NamespaceDefault
	}
	Record(r.publisher, &occurrence.Occurrence{
		API:    occurrence.CoreV1,
		Weight: 1,
		Event: &corev1.Event{
			ObjectMeta:          metav1.ObjectMeta{Namespace: namespace, Annotations: maps.Clone(annotations)},
			InvolvedObject:      *ref,
			Reason:              strings.ToValidUTF8(reason, "\uFFFD"),
			Message:             strings.ToValidUTF8(message, "\uFFFD"),
			FirstTimestamp:      now,
			LastTimestamp:       now,
			Count:               1,
			Type:                eventtype,
			Source:              r.source,
			ReportingController: r.source.Component,
			ReportingInstance:   r.source.Host,
		},
	})
}

// reference is tools/reference, which dereferences what it is given and hands
// references back as they are, nil ones too.
func (r *Recorder) reference(object runtime.Object) (ref *corev1.ObjectReference, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("object cannot be looked at: %v", p)
		}
	}()
	if ref, err = reference.GetReference(r.scheme, object); err == nil && ref == nil {
		err = reference.ErrNilObject
	}
	return ref, err
}
