package intake

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/eventd/eventd/pkg/occurrence"
)

// Plain metadata is that of the request, too, whatever was checked before.
func TestEventOfAnotherNamespaceIsRefused(t *testing.T) {
	for _, api := range []occurrence.API{occurrence.CoreV1, occurrence.EventsV1} {
		o := DefaultOptions()
		o.Record = func(*occurrence.Occurrence) { t.Error("recorded") }
		s := newStorage(must(New(o)), api, nil)
		event := backOff("a")
		rest.FillObjectMetaSystemFields(event)
		event.ResourceVersion = "1"
		for what, err := range map[string]error{
			"create": s.beforeCreate(t.Context(), "other", event.DeepCopy()),
			"update": s.beforeUpdate(t.Context(), "other", event.DeepCopy(), event),
		} {
			if !apierrors.IsBadRequest(err) {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
}
