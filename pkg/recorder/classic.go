package recorder

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/eventd/eventd/internal/occurrence"
)

// Recorder is client-go's record.EventRecorderLogger: it makes classic Events,
// which have a source and no eventTime.
type Recorder struct {
	maker
	source corev1.EventSource
}

var _ record.EventRecorderLogger = &Recorder{}

// New returns a recorder for the given source. The scheme resolves references
// to objects that do not carry their kind.
func New(p Publisher, scheme *runtime.Scheme, source corev1.EventSource) *Recorder {
	return &Recorder{
		maker:  maker{publisher: p, scheme: scheme, logger: klog.Background()},
		source: source,
	}
}

// WithRepairs returns a recorder that counts what it repairs.
func (r *Recorder) WithRepairs(repairs *Repairs) *Recorder {
	c := *r
	c.repairs = repairs
	return &c
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
	r.record(object, nil, eventtype, reason, r.format(messageFmt, args))
}

// AnnotatedEventf is Eventf with annotations on the Event.
func (r *Recorder) AnnotatedEventf(object runtime.Object, annotations map[string]string, eventtype, reason, messageFmt string, args ...any) {
	r.record(object, annotations, eventtype, reason, r.format(messageFmt, args))
}

func (r *Recorder) record(object runtime.Object, annotations map[string]string, eventtype, reason, message string) {
	ref := r.admit(object, eventtype, reason)
	if ref == nil {
		return
	}
	now := metav1.Now()
	o := &recorded{event: corev1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: r.repairs.namespace(ref), Annotations: maps.Clone(annotations)},
		InvolvedObject:      *ref,
		Reason:              r.repairs.text(reason),
		Message:             r.repairs.cut(r.repairs.text(message), maxClassicMessage, repairMessageCut),
		FirstTimestamp:      now,
		LastTimestamp:       now,
		Count:               1,
		Type:                eventtype,
		Source:              r.source,
		ReportingController: r.source.Component,
		ReportingInstance:   r.source.Host,
	}}
	o.occurrence = occurrence.Occurrence{API: occurrence.CoreV1, Weight: 1, Event: &o.event}
	Record(r.publisher, &o.occurrence)
}
