package observer

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/internal/identity"
)

// A version has the first of each, eventd's own annotation among them, and says how many it does not have.
func TestAVersionHasNoMoreItemsThanItMay(t *testing.T) {
	numbered := func(n int) map[string]string {
		m := map[string]string{identity.Annotation: "own"}
		for i := range n - 1 {
			m[fmt.Sprintf("a%03d", i)] = "x"
		}
		return m
	}
	for n, left := range map[int]string{10: "", maxItems: "", maxItems + 1: "4", 100: "144"} {
		event := &corev1.Event{ObjectMeta: metav1.ObjectMeta{
			Labels: numbered(n), Annotations: numbered(n),
			OwnerReferences: make([]metav1.OwnerReference, n), Finalizers: make([]string, n),
			ManagedFields: make([]metav1.ManagedFieldsEntry, n),
		}}
		slim(event)
		got := event.Annotations[leftOut]
		if delete(event.Annotations, leftOut); got != left || event.Annotations[identity.Annotation] != "own" || event.ManagedFields != nil {
			t.Errorf("of %d: %q are left out, %v", n, got, event)
		}
		want := min(n, maxItems)
		for what, has := range map[string]int{
			"labels": len(event.Labels), "annotations": len(event.Annotations),
			"owner references": len(event.OwnerReferences), "finalizers": len(event.Finalizers),
		} {
			if has != want {
				t.Errorf("of %d: %d %s, want %d", n, has, what, want)
			}
		}
	}
	bare := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Labels: numbered(maxItems + 1)}}
	if slim(bare); bare.Annotations[leftOut] != "1" {
		t.Errorf("an Event without annotations has %v", bare.Annotations)
	}
}
