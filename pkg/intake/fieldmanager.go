package intake

import (
	"errors"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// newFieldManager returns a field manager that tracks nothing, which the apiserver's
// handlers require. Its managedFields would be about the view, and not about the stored
// Event, which another client writes.
func newFieldManager(kind schema.GroupVersionKind, hub schema.GroupVersion) (*managedfields.FieldManager, error) {
	return managedfields.NewDefaultFieldManager(
		emptyTypes{}, sameVersion{scheme}, scheme, scheme, kind, hub, "", nil)
}

// emptyTypes converts every object to an empty one.
type emptyTypes struct{}

func (emptyTypes) ObjectToTyped(runtime.Object, ...typed.ValidationOptions) (*typed.TypedValue, error) {
	return typed.DeducedParseableType.FromUnstructured(map[string]any{})
}

// TypedToObject is for server-side apply, which is not served.
func (emptyTypes) TypedToObject(*typed.TypedValue) (runtime.Object, error) {
	return nil, errors.New("server-side apply is not served")
}

// sameVersion converts nothing, as no managed fields depend on the version.
type sameVersion struct{ runtime.ObjectConvertor }

func (sameVersion) ConvertToVersion(in runtime.Object, _ runtime.GroupVersioner) (runtime.Object, error) {
	return in, nil
}
