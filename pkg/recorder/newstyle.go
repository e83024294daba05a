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

// EventsRecorder implements events.EventRecorderLogger of client-go's tools/events. Its
// Events are new-style: they have an eventTime, an action and optionally a related object.
type EventsRecorder struct {
	base
	api        occurrence.API
	controller string
	instance   string
	// constant are the repairs of the controller and instance, counted for each Event.
	constant []repair
}

var _ events.EventRecorderLogger = &EventsRecorder{}

// NewEvents returns a recorder for the given reporting controller. The reporting instance
// is the controller and the hostname, as in client-go. Its Events are written through the
// given API, which determines the API group in which rights are needed.
func NewEvents(p Publisher, api occurrence.API, scheme *runtime.Scheme, reportingController string) *EventsRecorder {
	r := &EventsRecorder{
		base: base{publisher: p, kinds: &kinds{scheme: scheme}, logger: klog.Background()},
		api:  api,
	}
	host, _ := os.Hostname() // on an error, it is empty, as in client-go
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

// WithRepairs returns a copy of the recorder that counts its repairs.
func (r *EventsRecorder) WithRepairs(repairs *Repairs) *EventsRecorder {
	c := *r
	c.repairs = repairs
	return &c
}

// WithLogger returns a copy of the recorder with another logger.
func (r *EventsRecorder) WithLogger(logger klog.Logger) events.EventRecorderLogger {
	c := *r
	c.logger = logger
	return &c
}

// Eventf records that something happened to the object regarding. The related object may
// be nil. The apiserver requires a reason and an action (ValidateEventCreate in kubernetes
// pkg/apis/core/validation): an empty reason becomes "Unknown", an empty action the reason.
func (r *EventsRecorder) Eventf(regarding, related runtime.Object, eventtype, reason, action, note string, args ...any) {
	n := &newStyle{recorder: r}
	if !r.begin(&n.recorded, regarding, eventtype, reason) {
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
	n.formatMessage(note, args, identity.MaxNote, r.repairs)
	n.occurrence.API, n.occurrence.Weight, n.occurrence.Origin = r.api, 1, n
	Record(r.publisher, &n.occurrence)
}

// relatedTo returns a reference to the related object. If it cannot be referenced, it is
// left out, as in client-go.
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
	return new(o.reference())
}

// newStyle builds a new-style Event.
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
		Message:             n.eventMessage(),
		Type:                n.Type(),
		ReportingController: n.recorder.controller,
		ReportingInstance:   n.recorder.instance,
	}
}

// Shared implements occurrence.Origin.
func (n *newStyle) Shared(recorded time.Time) *occurrence.Shared {
	if event := n.shared.Load(); event != nil {
		return event
	}
	return n.share(n.Event(recorded))
}
