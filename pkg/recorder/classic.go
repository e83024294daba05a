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

// Recorder implements record.EventRecorderLogger of client-go's tools/record. Its Events
// are classic: they have a source and a count, and no eventTime.
type Recorder struct {
	base
	source corev1.EventSource
}

var _ record.EventRecorderLogger = &Recorder{}

// New returns a recorder for the given source. The scheme provides the kind of objects
// whose TypeMeta is empty, as in client-go's tools/reference.
func New(p Publisher, scheme *runtime.Scheme, source corev1.EventSource) *Recorder {
	return &Recorder{
		base:   base{publisher: p, kinds: &kinds{scheme: scheme}, logger: klog.Background()},
		source: source,
	}
}

// WithRepairs returns a copy of the recorder that counts its repairs.
func (r *Recorder) WithRepairs(repairs *Repairs) *Recorder {
	c := *r
	c.repairs = repairs
	return &c
}

// WithLogger returns a copy of the recorder with another logger.
func (r *Recorder) WithLogger(logger klog.Logger) record.EventRecorderLogger {
	c := *r
	c.logger = logger
	return &c
}

// Event records that something happened to an object.
func (r *Recorder) Event(object runtime.Object, eventtype, reason, message string) {
	if c := r.classic(object, eventtype, reason); c != nil {
		c.setMessage(message, maxClassicMessage, r.repairs)
		Record(r.publisher, &c.occurrence)
	}
}

// Eventf is Event with a message formatted as fmt.Sprintf does.
func (r *Recorder) Eventf(object runtime.Object, eventtype, reason, messageFmt string, args ...any) {
	r.AnnotatedEventf(object, nil, eventtype, reason, messageFmt, args...)
}

// AnnotatedEventf is Eventf with annotations on the Event.
func (r *Recorder) AnnotatedEventf(object runtime.Object, annotations map[string]string, eventtype, reason, messageFmt string, args ...any) {
	if c := r.classic(object, eventtype, reason); c != nil {
		c.annotations = maps.Clone(annotations)
		c.formatMessage(messageFmt, args, maxClassicMessage, r.repairs)
		Record(r.publisher, &c.occurrence)
	}
}

// classic builds a classic Event.
type classic struct {
	recorded
	recorder    *Recorder
	annotations map[string]string
}

// classic returns nil if no Event can be built.
func (r *Recorder) classic(object runtime.Object, eventtype, reason string) *classic {
	c := &classic{recorder: r}
	if !r.begin(&c.recorded, object, eventtype, reason) {
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
		Message:             c.eventMessage(),
		FirstTimestamp:      at,
		LastTimestamp:       at,
		Count:               1,
		Type:                c.Type(),
		Source:              source,
		ReportingController: source.Component,
		ReportingInstance:   source.Host,
	}
}

// Shared implements occurrence.Origin.
func (c *classic) Shared(recorded time.Time) *occurrence.Shared {
	if event := c.shared.Load(); event != nil {
		return event
	}
	return c.share(c.Event(recorded))
}
