package recorder

import (
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/occurrence"
)

// EventsRecorder is client-go's events.EventRecorderLogger: it makes new-style
// Events, which have an eventTime, an action and maybe a related object.
type EventsRecorder struct {
	maker
	api        occurrence.API
	controller string
	instance   string
	// constant are the repairs that every Event of this recorder needs.
	constant []repair
}

var _ events.EventRecorderLogger = &EventsRecorder{}

// NewEvents returns a recorder that reports as the given controller, in an
// instance that is named after it and the host, as client-go's is. What it
// records is to be written through the given API: both store the same object,
// but they need rights in different API groups.
func NewEvents(p Publisher, api occurrence.API, scheme *runtime.Scheme, reportingController string) *EventsRecorder {
	r := &EventsRecorder{
		maker: maker{publisher: p, kinds: &kinds{scheme: scheme}, logger: klog.Background()},
		api:   api,
	}
	host, _ := os.Hostname() // without one, the controller alone is the instance, as in client-go
	r.controller, r.instance = reportingController, reportingController+"-"+host
	if name := qualifiedName(r.controller); name != r.controller {
		r.controller = name
		r.constant = append(r.constant, repairReportingController)
	}
	if name := shortInstance(r.instance); name != r.instance {
		r.instance = name
		r.constant = append(r.constant, repairReportingInstance)
	}
	return r
}

// WithRepairs returns a recorder that counts what it repairs.
func (r *EventsRecorder) WithRepairs(repairs *Repairs) *EventsRecorder {
	c := *r
	c.repairs = repairs
	return &c
}

// WithLogger returns a recorder that logs through the given logger.
func (r *EventsRecorder) WithLogger(logger klog.Logger) events.EventRecorderLogger {
	c := *r
	c.logger = logger
	return &c
}

// Eventf records that something happened to the object regarding, maybe through
// a related one. The apiserver requires a reason and an action: an empty action
// becomes the reason, an empty reason becomes "Unknown".
func (r *EventsRecorder) Eventf(regarding, related runtime.Object, eventtype, reason, action, note string, args ...any) {
	n := &newStyle{recorder: r}
	if !r.admit(&n.recorded, regarding, eventtype, reason) {
		return
	}
	for _, constant := range r.constant {
		r.repairs.count(constant)
	}
	n.reason = r.repairs.cut(n.reason, identity.MaxReason, repairReasonCut)
	if n.reason == "" {
		r.repairs.count(repairReasonEmpty)
		n.reason = unknown
	}
	n.action = r.repairs.cut(r.repairs.text(action), identity.MaxAction, repairActionCut)
	if n.action == "" {
		r.repairs.count(repairActionEmpty)
		n.action = n.reason
	}
	n.related = r.relatedTo(related)
	n.sayf(note, args, identity.MaxNote, r.repairs)
	n.occurrence.API, n.occurrence.Weight, n.occurrence.Origin = r.api, 1, n
	Record(r.publisher, &n.occurrence)
}

// relatedTo is a reference to the related object. One that cannot be referred
// to is left out, as client-go does.
func (r *EventsRecorder) relatedTo(related runtime.Object) *corev1.ObjectReference {
	if related == nil {
		return nil
	}
	var o object
	if err := r.kinds.refer(&o, related); err != nil {
		r.logger.V(4).Info("Event recorded without its related object", "err", err)
		r.repairs.count(repairRelatedLeftOut)
		return nil
	}
	ref := o.reference()
	return &ref
}

// newStyle is what is kept of a new-style Event.
type newStyle struct {
	recorded
	recorder *EventsRecorder
	action   string
	related  *corev1.ObjectReference
}

// Event implements occurrence.Origin.
func (n *newStyle) Event(recorded time.Time) *corev1.Event {
	return &corev1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: n.namespace()},
		InvolvedObject:      n.object.reference(),
		Related:             n.related.DeepCopy(),
		EventTime:           metav1.NewMicroTime(recorded),
		Reason:              n.reason,
		Action:              n.action,
		Message:             n.said(),
		Type:                n.Type(),
		ReportingController: n.recorder.controller,
		ReportingInstance:   n.recorder.instance,
	}
}
