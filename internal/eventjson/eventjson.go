// Package eventjson encodes Events as JSON for receivers. Everybody who may create an Event decides
// what is in it, so nothing in it may break the line it is on, or the decoder of a consumer.
package eventjson

import (
	"encoding/json"
	"io"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NewEncoder returns an encoder that writes each value on one line, which ends with a newline. It
// leaves <, > and & as they are, since messages are full of them. Bytes that are no UTF-8 become
// U+FFFD.
func NewEncoder(w io.Writer) *json.Encoder {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e
}

// Of returns what is encoded of an Event. It shares memory with the Event, which it does not change.
//
// It has the kind and version that typed clients remove, and no managedFields. Times that RFC 3339
// cannot express are unset: the apiserver stores them when they come as protobuf, and no typed
// client decodes them from JSON.
func Of(event *corev1.Event) corev1.Event {
	e := *event
	e.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Event"}
	e.ManagedFields = nil
	for _, t := range []*metav1.Time{&e.CreationTimestamp, &e.FirstTimestamp, &e.LastTimestamp} {
		if !expressible(*t) {
			*t = metav1.Time{}
		}
	}
	if t := e.DeletionTimestamp; t != nil && !expressible(*t) {
		e.DeletionTimestamp = nil
	}
	if !expressible(metav1.Time(e.EventTime)) {
		e.EventTime = metav1.MicroTime{}
	}
	if s := e.Series; s != nil && !expressible(metav1.Time(s.LastObservedTime)) {
		e.Series = &corev1.EventSeries{Count: s.Count}
	}
	return e
}

func expressible(t metav1.Time) bool {
	year := t.UTC().Year()
	return 0 <= year && year <= 9999
}
