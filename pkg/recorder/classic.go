package recorder

import (
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/eventd/eventd/pkg/occurrence"
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
		maker:  maker{publisher: p, kinds: &kinds{scheme: scheme}, logger: klog.Background()},
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
	if c := r.begin(object, eventtype, reason); c != nil {
		c.say(message, maxClassicMessage, r.repairs)
		Record(r.publisher, &c.occurrence)
	}
}

// Eventf is Event with a formatted message. Arguments whose methods panic are
// shown as fmt shows them.
func (r *Recorder) Eventf(object runtime.Object, eventtype, reason, messageFmt string, args ...any) {
	r.AnnotatedEventf(object, nil, eventtype, reason, messageFmt, args...)
}

// AnnotatedEventf is Eventf with annotations on the Event.
func (r *Recorder) AnnotatedEventf(object runtime.Object, annotations map[string]string, eventtype, reason, messageFmt string, args ...any) {
	if c := r.begin(object, eventtype, reason); c != nil {
		c.annotations = maps.Clone(annotations)
		c.sayf(messageFmt, args, maxClassicMessage, r.repairs)
		Record(r.publisher, &c.occurrence)
	}
}

// classic is what is kept of a classic Event.
type classic struct {
	recorded
	recorder    *Recorder
	annotations map[string]string
}

// begin returns nil if there can be no Event.
func (r *Recorder) begin(object runtime.Object, eventtype, reason string) *classic {
	c := &classic{recorder: r}
	if !r.admit(&c.recorded, object, eventtype, reason) {
		return nil
	}
	c.occurrence.API, c.occurrence.Weight, c.occurrence.Origin = occurrence.CoreV1, 1, c
	return c
}

// Event implements occurrence.Origin.
func (c *classic) Event(recorded time.Time) *corev1.Event {
	at, source := metav1.NewTime(recorded), c.recorder.source
	return &corev1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: c.namespace(), Annotations: maps.Clone(c.annotations)},
		InvolvedObject:      c.object.reference(),
		Reason:              c.reason,
		Message:             c.said(),
		FirstTimestamp:      at,
		LastTimestamp:       at,
		Count:               1,
		Type:                c.Type(),
		Source:              source,
		ReportingController: source.Component,
		ReportingInstance:   source.Host,
	}
}
