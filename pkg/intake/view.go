package intake

import (
	"context"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/internal/eventsize"
	"github.com/eventd/eventd/pkg/occurrence"
)

// view is the Event of a posted name as its client sees it. It never changes;
// a client's change makes another one.
type view struct {
	event *corev1.Event
	// origin is what was reported first under the name. Its identity is that of
	// the series that later reports belong to as well.
	origin *corev1.Event
	// total is the highest count that the client has reported.
	total int64
	term  int64 // of the request that it is from
	// number is that of the report that it is from: higher ones are later.
	number int64
	size   int64 // in memory
	// tenant is the one of the user that the request is from.
	tenant string
}

// newView returns the view that follows from a report once stored is what the
// apiserver has for it, nil if that is not known.
func (r *report) newView(stored *corev1.Event) *view {
	v := &view{event: r.event, origin: r.origin, total: r.occurrence.Total, term: r.term, number: r.number,
		size: eventsize.Of(r.event) + eventsize.Of(r.origin), tenant: occurrence.TenantOf(r.occurrence.User)}
	if stored == nil {
		stored = &corev1.Event{}
	}
	v = v.of(stored)
	if stored.ResourceVersion != "" {
		v.event.ResourceVersion = stored.ResourceVersion
	}
	if v.event.ResourceVersion == "" {
		// Without one an object counts as one that is not there yet.
		v.event.ResourceVersion = strconv.Itoa(1)
	}
	return v
}

// begins returns the view that follows from a report before its outcome is known. Its
// resourceVersion is another than that of the view before, though the apiserver has
// not given one yet: whoever changed the older view at the same time is to meet a
// conflict.
func (r *report) begins() *view {
	v := r.newView(nil)
	if version, err := versioner.ObjectResourceVersion(r.event); err == nil {
		v.event.ResourceVersion = strconv.FormatUint(version+1, 10)
	}
	return v
}

// of returns the view with what tells a stored Event from others.
func (v *view) of(stored *corev1.Event) *view {
	out := *v
	out.event = v.event.DeepCopy()
	if stored.UID != "" {
		out.event.UID = stored.UID
	}
	if !stored.CreationTimestamp.IsZero() {
		out.event.CreationTimestamp = stored.CreationTimestamp
	}
	return &out
}

// former tells whether another leader may have answered for the name between the
// view and a request.
func (v *view) former(ctx context.Context) bool { return v.term < termOf(ctx) }

// totalOf is the count that a client has reached with an Event.
func totalOf(event *corev1.Event) int64 {
	count := event.Count
	if !event.EventTime.IsZero() && event.Series != nil {
		count = event.Series.Count
	}
	return max(1, int64(count))
}

// reported returns a copy of an Event without what only its client's view has.
func reported(event *corev1.Event) *corev1.Event {
	out := event.DeepCopy()
	out.UID = ""
	out.ResourceVersion = ""
	out.CreationTimestamp = metav1.Time{}
	out.DeletionTimestamp = nil
	out.DeletionGracePeriodSeconds = nil
	out.Generation = 0
	return out
}

// asBegun puts the identity that a name was first posted with into a later
// report of it. A client may change what its view says an Event is about; the
// series that it began stays what it is.
func asBegun(event, origin *corev1.Event) {
	event.InvolvedObject = origin.InvolvedObject
	event.Source = origin.Source
	event.ReportingController = origin.ReportingController
	event.ReportingInstance = origin.ReportingInstance
	event.Type = origin.Type
	event.Reason = origin.Reason
	event.EventTime = origin.EventTime
	event.Action = origin.Action
	event.Related = origin.Related
	if !origin.EventTime.IsZero() {
		event.Message = origin.Message // that of a classic Event is what is stored of its last report
	}
}
