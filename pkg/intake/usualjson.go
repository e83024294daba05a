package intake

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/pkg/occurrence"
)

// decodeUsualJSON returns the Event in a body, nil if it is not usual.
func decodeUsualJSON(body []byte, api occurrence.API, namespace string) *corev1.Event {
	r := &jsonReader{data: body}
	r.keep(namespace)
	event := &corev1.Event{}
	if !r.event(event, api) || !r.end() {
		return nil
	}
	return event
}

func (r *jsonReader) event(event *corev1.Event, api occurrence.API) bool {
	groupVersion := "v1"
	if api == occurrence.EventsV1 {
		groupVersion = "events.k8s.io/v1"
	}
	const required = 1<<fieldKind | 1<<fieldAPIVersion
	seen := uint32(0)
	ok := r.object(func(key []byte) bool {
		field := fieldOf(key, api)
		if seen&(1<<field) != 0 {
			return false
		}
		seen |= 1 << field
		switch field {
		case fieldKind:
			return r.text(&event.Kind) && event.Kind == "Event"
		case fieldAPIVersion:
			return r.text(&event.APIVersion) && event.APIVersion == groupVersion
		case fieldMetadata:
			return r.metadata(&event.ObjectMeta)
		case fieldInvolvedObject:
			return r.reference(&event.InvolvedObject)
		case fieldReason:
			return r.text(&event.Reason)
		case fieldMessage:
			return r.text(&event.Message)
		case fieldSource:
			return r.source(&event.Source)
		case fieldFirstTimestamp:
			return r.time(&event.FirstTimestamp)
		case fieldLastTimestamp:
			return r.time(&event.LastTimestamp)
		case fieldCount:
			return r.int32(&event.Count)
		case fieldType:
			return r.text(&event.Type)
		case fieldEventTime:
			return r.microTime(&event.EventTime)
		case fieldSeries:
			event.Series = &corev1.EventSeries{}
			_, ok := r.series(event.Series)
			return ok
		case fieldAction:
			return r.text(&event.Action)
		case fieldRelated:
			event.Related = &corev1.ObjectReference{}
			return r.reference(event.Related)
		case fieldReportingController:
			return r.text(&event.ReportingController)
		case fieldReportingInstance:
			return r.text(&event.ReportingInstance)
		}
		return false
	})
	return ok && seen&required == required
}

// The fields of an Event.
const (
	fieldKind = iota
	fieldAPIVersion
	fieldMetadata
	fieldInvolvedObject
	fieldReason
	fieldMessage
	fieldSource
	fieldFirstTimestamp
	fieldLastTimestamp
	fieldCount
	fieldType
	fieldEventTime
	fieldSeries
	fieldAction
	fieldRelated
	fieldReportingController
	fieldReportingInstance
	fieldUnknown
)

// fieldOf returns the field that has a name in an API.
func fieldOf(name []byte, api occurrence.API) int {
	switch string(name) {
	case "kind":
		return fieldKind
	case "apiVersion":
		return fieldAPIVersion
	case "metadata":
		return fieldMetadata
	case "reason":
		return fieldReason
	case "type":
		return fieldType
	case "eventTime":
		return fieldEventTime
	case "series":
		return fieldSeries
	case "action":
		return fieldAction
	case "related":
		return fieldRelated
	case "reportingInstance":
		return fieldReportingInstance
	}
	if api == occurrence.EventsV1 {
		switch string(name) {
		case "regarding":
			return fieldInvolvedObject
		case "note":
			return fieldMessage
		case "deprecatedSource":
			return fieldSource
		case "deprecatedFirstTimestamp":
			return fieldFirstTimestamp
		case "deprecatedLastTimestamp":
			return fieldLastTimestamp
		case "deprecatedCount":
			return fieldCount
		case "reportingController":
			return fieldReportingController
		}
		return fieldUnknown
	}
	switch string(name) {
	case "involvedObject":
		return fieldInvolvedObject
	case "message":
		return fieldMessage
	case "source":
		return fieldSource
	case "firstTimestamp":
		return fieldFirstTimestamp
	case "lastTimestamp":
		return fieldLastTimestamp
	case "count":
		return fieldCount
	case "reportingComponent":
		return fieldReportingController
	}
	return fieldUnknown
}

// metadata reads a name and a namespace. All else that a client may set takes the generic path.
func (r *jsonReader) metadata(meta *metav1.ObjectMeta) bool {
	seen := 0
	return r.object(func(key []byte) bool {
		switch string(key) {
		case "name":
			return once(&seen, 1) && r.text(&meta.Name)
		case "namespace":
			return once(&seen, 2) && r.text(&meta.Namespace)
		case "creationTimestamp":
			return once(&seen, 4) && r.null()
		}
		return false
	})
}

func (r *jsonReader) reference(ref *corev1.ObjectReference) bool {
	seen := 0
	return r.object(func(key []byte) bool {
		switch string(key) {
		case "kind":
			return once(&seen, 1) && r.text(&ref.Kind)
		case "namespace":
			return once(&seen, 2) && r.text(&ref.Namespace)
		case "name":
			return once(&seen, 4) && r.text(&ref.Name)
		case "uid":
			return once(&seen, 8) && r.text((*string)(&ref.UID))
		case "apiVersion":
			return once(&seen, 16) && r.text(&ref.APIVersion)
		case "resourceVersion":
			return once(&seen, 32) && r.text(&ref.ResourceVersion)
		case "fieldPath":
			return once(&seen, 64) && r.text(&ref.FieldPath)
		}
		return false
	})
}

func (r *jsonReader) source(source *corev1.EventSource) bool {
	seen := 0
	return r.object(func(key []byte) bool {
		switch string(key) {
		case "component":
			return once(&seen, 1) && r.text(&source.Component) && r.keep(source.Component)
		case "host":
			return once(&seen, 2) && r.text(&source.Host) && r.keep(source.Host)
		}
		return false
	})
}

// Fields of a series.
const (
	seriesCount = 1 << iota
	seriesLastObservedTime
)

// series returns which fields it has read.
func (r *jsonReader) series(series *corev1.EventSeries) (seen int, ok bool) {
	ok = r.object(func(key []byte) bool {
		switch string(key) {
		case "count":
			return once(&seen, seriesCount) && r.int32(&series.Count)
		case "lastObservedTime":
			return once(&seen, seriesLastObservedTime) && r.microTime(&series.LastObservedTime)
		}
		return false
	})
	return seen, ok
}

// once adds a field to those that were seen, and returns false if it was.
func once(seen *int, field int) bool {
	was := *seen&field != 0
	*seen |= field
	return !was
}
