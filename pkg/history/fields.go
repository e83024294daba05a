package history

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eventd/eventd/internal/eventfields"
	"github.com/eventd/eventd/internal/eventsize"
	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/internal/truncate"
	"github.com/eventd/eventd/pkg/observer"
)

const (
	// maxMessage and maxText cut the message and the other strings of an Event, in bytes. Validation
	// allows less, but not in classic Events, which have no limit of their own.
	maxMessage = 4 << 10
	maxText    = 1 << 10
	// maxMap is the size of the labels, or of the annotations, above which they are not kept.
	maxMap = 1 << 10
)

// rowBytes is the size of a row without its Event, and of its place in the head, in bytes.
const rowBytes = 128

// row is a version in the head.
type row struct {
	observer.Version
	seq   int64
	epoch int64
	rv    uint64
	// listed: it came with a list, so neither is it in order of resourceVersion, nor is it known that
	// all before it came.
	listed bool
	bytes  int64
}

// time is that of the Event, in microseconds since 1970. Nothing happens after it was observed, whatever its reporter
// says: otherwise it would be newer than all that comes.
func (r *row) time() int64 {
	observed := r.Observed.UnixMicro()
	if at := eventfields.LastTime(r.Event); !at.IsZero() {
		return min(at.UnixMicro(), observed)
	}
	return observed
}

// newRow returns the row of a version. ok is false if its resourceVersion is no number.
func newRow(v observer.Version, listed bool) (r row, ok bool) {
	rv, err := parseRV(v.Event.ResourceVersion)
	if err != nil {
		return row{}, false
	}
	kept := keptOf(v.Event)
	kept.ResourceVersion = formatRV(rv)
	observed := time.UnixMicro(v.Observed.UnixMicro())
	return row{Version: observer.Version{Event: kept, Observed: observed}, rv: rv, listed: listed, bytes: eventsize.Of(kept) + rowBytes}, true
}

// keptOf returns a copy of an Event with the fields that are kept. It shares strings and maps.
func keptOf(e *corev1.Event) *corev1.Event {
	kept := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: text(e.Namespace), Name: text(e.Name), UID: types.UID(text(string(e.UID))),
			CreationTimestamp: second(e.CreationTimestamp),
			Labels:            keptMap(e.Labels), Annotations: keptMap(e.Annotations),
		},
		InvolvedObject: keptReference(&e.InvolvedObject),
		Reason:         text(e.Reason), Message: strings.Clone(truncate.String(e.Message, maxMessage)), Type: text(e.Type), Action: text(e.Action),
		Source:              corev1.EventSource{Component: text(e.Source.Component), Host: text(e.Source.Host)},
		ReportingController: text(e.ReportingController), ReportingInstance: text(e.ReportingInstance),
		Count:          e.Count,
		FirstTimestamp: second(e.FirstTimestamp),
		LastTimestamp:  second(e.LastTimestamp),
		EventTime:      metav1.MicroTime{Time: instant(e.EventTime.Time)},
	}
	if e.Series != nil {
		kept.Series = &corev1.EventSeries{Count: e.Series.Count, LastObservedTime: metav1.MicroTime{Time: instant(e.Series.LastObservedTime.Time)}}
	}
	if e.Related != nil {
		if related := keptReference(e.Related); related != (corev1.ObjectReference{}) {
			kept.Related = &related
		}
	}
	return kept
}

// keptReference has no resourceVersion: nothing shows it, and it differs from Event to Event.
func keptReference(o *corev1.ObjectReference) corev1.ObjectReference {
	return corev1.ObjectReference{
		Kind: text(o.Kind), Namespace: text(o.Namespace), Name: text(o.Name), UID: types.UID(text(string(o.UID))),
		APIVersion: text(o.APIVersion), FieldPath: text(o.FieldPath),
	}
}

// keptMap leaves out the annotations in which eventd counts: they change with every version.
func keptMap(m map[string]string) map[string]string {
	bytes, own := 0, 0
	for k, v := range m {
		if strings.HasPrefix(k, identity.AnnotationPrefix) {
			own++
			continue
		}
		bytes += len(k) + len(v) + 4
	}
	switch {
	case len(m) == own || bytes > maxMap:
		return nil
	case own == 0:
		return m
	}
	kept := make(map[string]string, len(m)-own)
	for k, v := range m {
		if !strings.HasPrefix(k, identity.AnnotationPrefix) {
			kept[k] = v
		}
	}
	return kept
}

// text does not keep the whole of s in memory.
func text(s string) string { return strings.Clone(truncate.String(s, maxText)) }

// second is a time in seconds, the precision of the API.
func second(t metav1.Time) metav1.Time {
	return metav1.Time{Time: instant(t.Truncate(time.Second))}
}

// instant is a time in microseconds, the precision of the API. One that JSON or protobuf cannot have is none.
func instant(t time.Time) time.Time {
	if year := t.UTC().Year(); t.IsZero() || year < 1 || year > 9999 {
		return time.Time{}
	}
	return time.UnixMicro(t.UnixMicro())
}
