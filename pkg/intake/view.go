package intake

import (
	"context"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/internal/eventsize"
	"github.com/eventd/eventd/pkg/occurrence"
)

// view is the Event of a posted name as its client sees it. It is immutable, and so is all
// that its Events refer to, which views share: a change of the client makes another view.
type view struct {
	event *corev1.Event
	// origin is the first report of the name. Later reports belong to its series.
	origin *corev1.Event
	// total is the highest count that the client has reported.
	total int64
	// filtered is the part of the total that rules have filtered.
	filtered int64
	// gone: the stored Event no longer exists. Only filtered is valid, for when the client
	// posts it again.
	gone bool
	term int64 // of the request
	// number is that of the report: higher ones are later.
	number int64
	size   int64 // in memory
	// tenant is that of the user of the request.
	tenant string
}

// newView returns the view of a report. stored is the Event in the apiserver, nil if it
// is not known.
func (r *report) newView(stored *corev1.Event) *view {
	event := *r.event
	v := &view{event: &event, origin: r.origin, total: r.occurrence.Total, filtered: r.filtered, term: r.term, number: r.number,
		size: r.viewSize(), tenant: occurrence.TenantOf(r.occurrence.User)}
	if stored != nil {
		setStored(&event, stored)
		if stored.ResourceVersion != "" {
			event.ResourceVersion = stored.ResourceVersion
		}
	}
	if event.ResourceVersion == "" {
		// An object without one does not exist yet for the apiserver's handlers.
		event.ResourceVersion = "1"
	}
	return v
}

// viewSize is the size of the views of a report.
func (r *report) viewSize() int64 { return eventsize.Of(r.event) + eventsize.Of(r.origin) }

// begins returns the view of a report before its outcome is known. Its resourceVersion
// differs from that of the view before, although the apiserver has not assigned one:
// a concurrent change of the older view must be a conflict.
func (r *report) begins() *view {
	v := r.newView(nil)
	if version, err := versioner.ObjectResourceVersion(r.event); err == nil {
		v.event.ResourceVersion = strconv.FormatUint(version+1, 10)
	}
	return v
}

// of returns the view with the UID and creation time of a stored Event.
func (v *view) of(stored *corev1.Event) *view {
	out, event := *v, *v.event
	setStored(&event, stored)
	out.event = &event
	return &out
}

// setStored sets the UID and creation time of a stored Event.
func setStored(event, stored *corev1.Event) {
	if stored.UID != "" {
		event.UID = stored.UID
	}
	if !stored.CreationTimestamp.IsZero() {
		event.CreationTimestamp = stored.CreationTimestamp
	}
}

// former reports whether another leader may have responded for the name between the view
// and a request.
func (v *view) former(ctx context.Context) bool { return v.term < callOf(ctx).term.Number }

// totalOf is the number of occurrences that an Event counts. The apiserver accepts a series of a classic Event too.
func totalOf(event *corev1.Event) int64 {
	count := event.Count
	if event.Series != nil {
		count = max(count, event.Series.Count)
	}
	return max(1, int64(count))
}

// reported returns a copy of an Event without the fields that the apiserver assigns.
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

// asBegun copies the identity of the first report of a name into a later one. A client
// may change what the Event of its view is about, but its series stays the same.
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
		event.Message = origin.Message // a classic Event has the message of its last report
	}
}
