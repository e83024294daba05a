package rules

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/pkg/config/v1alpha1"
)

// Redact returns an Event without fields of v1alpha1.Receiver.Redact, which Load has validated. The
// argument is not changed; the result shares with it what is not redacted. Without fields, it is
// the argument.
func Redact(event *corev1.Event, fields []string) *corev1.Event {
	if len(fields) == 0 {
		return event
	}
	out := *event
	if out.Related != nil {
		out.Related = new(*out.Related)
	}
	for _, name := range fields {
		of, key := v1alpha1.RedactedKey(name)
		if key != "" {
			removeKey(&out.ObjectMeta, of, key)
		} else if remove, known := removals[name]; known {
			remove(&out)
		}
	}
	return &out
}

// removals has all of v1alpha1.RedactableFields.
var removals = map[string]func(*corev1.Event){
	"metadata.name":        func(e *corev1.Event) { e.Name, e.GenerateName = "", "" },
	"metadata.namespace":   func(e *corev1.Event) { e.Namespace = "" },
	"metadata.labels":      func(e *corev1.Event) { e.Labels = nil },
	"metadata.annotations": func(e *corev1.Event) { e.Annotations = nil },
	"reason":               func(e *corev1.Event) { e.Reason = "" },
	"message":              func(e *corev1.Event) { e.Message = "" },
	"type":                 func(e *corev1.Event) { e.Type = "" },
	"action":               func(e *corev1.Event) { e.Action = "" },
	"reportingComponent":   func(e *corev1.Event) { e.ReportingController, e.Source.Component = "", "" },
	"reportingInstance":    func(e *corev1.Event) { e.ReportingInstance, e.Source.Host = "", "" },

	"involvedObject":            func(e *corev1.Event) { e.InvolvedObject = corev1.ObjectReference{} },
	"involvedObject.kind":       func(e *corev1.Event) { e.InvolvedObject.Kind = "" },
	"involvedObject.namespace":  func(e *corev1.Event) { e.InvolvedObject.Namespace = "" },
	"involvedObject.name":       func(e *corev1.Event) { e.InvolvedObject.Name = "" },
	"involvedObject.uid":        func(e *corev1.Event) { e.InvolvedObject.UID = "" },
	"involvedObject.apiVersion": func(e *corev1.Event) { e.InvolvedObject.APIVersion = "" },
	"involvedObject.fieldPath":  func(e *corev1.Event) { e.InvolvedObject.FieldPath = "" },

	"related":            func(e *corev1.Event) { e.Related = nil },
	"related.kind":       related(func(r *corev1.ObjectReference) { r.Kind = "" }),
	"related.namespace":  related(func(r *corev1.ObjectReference) { r.Namespace = "" }),
	"related.name":       related(func(r *corev1.ObjectReference) { r.Name = "" }),
	"related.uid":        related(func(r *corev1.ObjectReference) { r.UID = "" }),
	"related.apiVersion": related(func(r *corev1.ObjectReference) { r.APIVersion = "" }),
	"related.fieldPath":  related(func(r *corev1.ObjectReference) { r.FieldPath = "" }),
}

func related(remove func(*corev1.ObjectReference)) func(*corev1.Event) {
	return func(e *corev1.Event) {
		if e.Related != nil {
			remove(e.Related)
		}
	}
}

// removeKey removes a key from a copy of the labels or annotations.
func removeKey(m *metav1.ObjectMeta, of, key string) {
	switch of {
	case "metadata.labels":
		m.Labels = maps.Clone(m.Labels)
		delete(m.Labels, key)
	case "metadata.annotations":
		m.Annotations = maps.Clone(m.Annotations)
		delete(m.Annotations, key)
	}
}
