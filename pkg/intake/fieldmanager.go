package intake

import (
	"errors"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// newFieldManager returns what the apiserver's handlers need to work, at the
// least cost. managedFields would tell who wrote an Event that a client does
// not write itself, so they are not tracked: every object looks empty to it.
func newFieldManager(kind schema.GroupVersionKind, hub schema.GroupVersion) (*managedfields.FieldManager, error) {
	return managedfields.NewDefaultFieldManager(
		emptyTypes{}, sameVersion{scheme}, scheme, scheme, kind, hub, "", nil)
}

// emptyTypes sees no fields in any object.
type emptyTypes struct{}

func (emptyTypes) ObjectToTyped(runtime.Object, ...typed.ValidationOptions) (*typed.TypedValue, error) {
	return typed.DeducedParseableType.FromUnstructured(map[string]any{})
}

// TypedToObject is for server-side apply, which is not served.
func (emptyTypes) TypedToObject(*typed.TypedValue) (runtime.Object, error) {
	return nil, errors.New("server-side apply is not served")
}

// sameVersion spares the conversions that nobody would look at.
type sameVersion struct{ runtime.ObjectConvertor }

func (sameVersion) ConvertToVersion(in runtime.Object, _ runtime.GroupVersioner) (runtime.Object, error) {
	return in, nil
}
