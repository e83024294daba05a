package intake

import (
	"context"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/internal/occurrence"
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
	size  int64
	// tenant is the one of the user that the request is from.
	tenant string
}

// newView returns the view that follows from a report and its Event once stored is
// what the apiserver has for it. The event must not be changed afterwards.
func (r *report) newView(event, stored *corev1.Event) *view {
	if stored != nil {
		event = event.DeepCopy()
		if stored.UID != "" {
			event.UID = stored.UID
		}
		if stored.ResourceVersion != "" {
			event.ResourceVersion = stored.ResourceVersion
		}
		if !stored.CreationTimestamp.IsZero() {
			event.CreationTimestamp = stored.CreationTimestamp
		}
	}
	if event.ResourceVersion == "" {
		// Without one an object counts as one that is not there yet.
		event.ResourceVersion = strconv.Itoa(1)
	}
	return &view{event: event, origin: r.origin, total: r.occurrence.Total, term: r.term,
		size: int64(event.Size() + r.origin.Size()), tenant: occurrence.TenantOf(r.occurrence.User)}
}

// former tells whether another leader may have answered for the name between the
// view and a request.
func (v *view) former(ctx context.Context) bool { return v.term < termOf(ctx) }

// changed returns a copy of an Event whose resourceVersion is another than that
// of the view before, though the apiserver has not given one yet: whoever changed
// the older view at the same time is to meet a conflict.
func changed(event *corev1.Event) *corev1.Event {
	event = event.DeepCopy()
	if version, err := versioner.ObjectResourceVersion(event); err == nil {
		event.ResourceVersion = strconv.FormatUint(version+1, 10)
	}
	return event
}

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
