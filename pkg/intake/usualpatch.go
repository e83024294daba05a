package intake

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/eventd/eventd/pkg/occurrence"
)

// usualPatch is the strategic merge patch of a repeated Event: client-go's tools/record changes count,
// lastTimestamp and message of a core/v1 Event, and its tools/events the series of an events.k8s.io/v1 Event.
type usualPatch struct {
	storage *storage
	name    string

	event  corev1.Event // what it sets
	series corev1.EventSeries
	fields uint32 // that it sets, by their bits
	within int    // fields of the series that it sets
}

var _ rest.UpdatedObjectInfo = &usualPatch{}

// decodeUsualPatch returns nil for another patch.
func decodeUsualPatch(body []byte, api occurrence.API) *usualPatch {
	r, p := &jsonReader{data: body}, &usualPatch{}
	ok := r.object(func(name []byte) (ok bool) {
		field := fieldOf(name, api)
		if p.fields&(1<<field) != 0 {
			return false
		}
		p.fields |= 1 << field
		switch {
		case field == fieldSeries:
			p.within, ok = r.series(&p.series)
			return ok && p.within != 0 && !p.series.LastObservedTime.IsZero() == (p.within&seriesLastObservedTime != 0)
		case api != occurrence.CoreV1: // the rest of the Event cannot be changed
			return false
		case field == fieldCount:
			return r.int32(&p.event.Count)
		case field == fieldLastTimestamp:
			return r.time(&p.event.LastTimestamp) && !p.event.LastTimestamp.IsZero() // null would unset it
		case field == fieldMessage:
			return r.text(&p.event.Message)
		}
		return false
	})
	if !ok || !r.end() || p.fields == 0 {
		return nil
	}
	return p
}

// Preconditions implements rest.UpdatedObjectInfo.
func (p *usualPatch) Preconditions() *metav1.Preconditions { return nil }

// UpdatedObject implements rest.UpdatedObjectInfo. It returns another Event than the old one.
func (p *usualPatch) UpdatedObject(_ context.Context, old runtime.Object) (runtime.Object, error) {
	existing := old.(*corev1.Event)
	if existing.UID == "" { // there is none
		return nil, apierrors.NewNotFound(p.storage.resource, p.name)
	}
	if !isUsualMeta(&existing.ObjectMeta) || existing.DeletionTimestamp != nil {
		return nil, errUnusual
	}
	event := existing.DeepCopy()
	if p.fields&(1<<fieldCount) != 0 {
		event.Count = p.event.Count
	}
	if p.fields&(1<<fieldLastTimestamp) != 0 {
		event.LastTimestamp = p.event.LastTimestamp
	}
	if p.fields&(1<<fieldMessage) != 0 {
		event.Message = p.event.Message
	}
	if p.fields&(1<<fieldSeries) != 0 {
		p.setSeries(event)
	}
	if !roundTimes(event) {
		return nil, errUnusual
	}
	return event, nil
}

func (p *usualPatch) setSeries(event *corev1.Event) {
	if event.Series == nil {
		event.Series = &corev1.EventSeries{}
	}
	if p.within&seriesCount != 0 {
		event.Series.Count = p.series.Count
	}
	if p.within&seriesLastObservedTime != 0 {
		event.Series.LastObservedTime = p.series.LastObservedTime
	}
}

// roundTimes has the times of an Event as they are after the generic handler has applied a patch to its
// JSON: in seconds or microseconds. It returns false for a time that JSON does not have.
func roundTimes(event *corev1.Event) bool {
	ok := round(&event.CreationTimestamp.Time, time.Second) && round(&event.FirstTimestamp.Time, time.Second) &&
		round(&event.LastTimestamp.Time, time.Second) && round(&event.EventTime.Time, time.Microsecond)
	return ok && (event.Series == nil || round(&event.Series.LastObservedTime.Time, time.Microsecond))
}

func round(t *time.Time, to time.Duration) bool {
	if t.IsZero() {
		*t = time.Time{}
		return true
	}
	*t = t.Truncate(to)
	year := t.UTC().Year()
	return 0 <= year && year <= 9999
}
