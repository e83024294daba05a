package rules

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/pkg/config/v1alpha1"
)

// full returns an Event with a value in every field that can be redacted.
func full() *corev1.Event {
	reference := corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: "web", UID: "u", APIVersion: "v1", FieldPath: "spec"}
	related := reference
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "web.1", GenerateName: "web.", Namespace: "shop", UID: "u1", ResourceVersion: "5",
			Labels: map[string]string{"a": "b", "c": "d"}, Annotations: map[string]string{"example.com/key": "b", "c": "d"}},
		InvolvedObject: reference, Related: &related,
		Reason: "BackOff", Message: "Back-off", Type: "Warning", Action: "Restart", Count: 4,
		ReportingController: "kubelet", ReportingInstance: "node-1",
		Source: corev1.EventSource{Component: "kubelet", Host: "node-1"},
	}
}

func TestEveryRedactableFieldIsRemoved(t *testing.T) {
	if got := v1alpha1.RedactableFields(); len(got) != len(removals) {
		t.Errorf("%d fields can be configured, and %d removed", len(got), len(removals))
	}
	for _, name := range v1alpha1.RedactableFields() {
		event := full()
		redacted := Redact(event, []string{name})
		if diff := cmp.Diff(full(), event); diff != "" {
			t.Errorf("%s: the shared Event was changed: %s", name, diff)
		}
		// An expression sees what a receiver gets.
		if e := result(t, "!has(event."+name+") && has(event.metadata.uid)", redacted); e.Result != Match {
			t.Errorf("%s is still there: %v %v", name, redacted, e)
		}
		if cmp.Equal(full(), redacted) {
			t.Errorf("%s: nothing was removed", name)
		}
	}
}

func TestOneRedactedFieldLeavesTheOthers(t *testing.T) {
	want := full()
	want.Message, want.Labels, want.Related.Name = "", map[string]string{"c": "d"}, ""
	want.Annotations = map[string]string{"c": "d"}
	want.Name, want.GenerateName = "", "" // which begins the name
	want.ReportingController, want.ReportingInstance, want.Source = "", "", corev1.EventSource{}
	fields := []string{"metadata.name", "reportingComponent", "reportingInstance", "message", `metadata.labels["a"]`, `metadata.annotations["example.com/key"]`, `metadata.annotations["none"]`, "related.name"}
	event := full()
	if diff := cmp.Diff(want, Redact(event, fields)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(full(), event); diff != "" {
		t.Errorf("the shared Event was changed: %s", diff)
	}
	if Redact(event, nil) != event {
		t.Error("without fields, the Event is copied")
	}
	if got := Redact(&corev1.Event{}, append(slices.Clone(fields), "related", "related.kind")); !cmp.Equal(got, &corev1.Event{}) {
		t.Errorf("an empty Event becomes %v", got)
	}
}
