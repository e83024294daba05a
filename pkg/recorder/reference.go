package recorder

import (
	"fmt"
	"reflect"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/reference"
)

// kinds makes references to objects as client-go's tools/reference does, and
// remembers the kinds of types: looking one up in a scheme costs more than all
// else that there is to a reference. It is safe for use by many goroutines.
type kinds struct {
	scheme *runtime.Scheme
	// known has a kind for each reflect.Type that was looked up. Only types of
	// the scheme come into it, which bounds it.
	known sync.Map
}

// kind is what a scheme, or an object itself, says that it is.
type kind struct{ apiVersion, kind string }

// object is a reference to one. It is smaller than an ObjectReference, since
// what is known of a type is shared.
type object struct {
	kind                             *kind
	namespace, name, resourceVersion string
	uid                              types.UID
	fieldPath                        string
}

func (o *object) reference() corev1.ObjectReference {
	return corev1.ObjectReference{
		APIVersion: o.kind.apiVersion, Kind: o.kind.kind, Namespace: o.namespace, Name: o.name,
		UID: o.uid, ResourceVersion: o.resourceVersion, FieldPath: o.fieldPath,
	}
}

// refer sets o to a reference to the object to. It is an error if there is none,
// and if looking at the object panics.
func (k *kinds) refer(o *object, to runtime.Object) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("a %T cannot be looked at", to)
		}
	}()
	if k.referByType(o, to) {
		return nil
	}
	// It dereferences what it is given, and hands references back as they are,
	// nil ones too.
	ref, err := reference.GetReference(k.scheme, to)
	if err != nil {
		return err
	}
	if ref == nil {
		return reference.ErrNilObject
	}
	*o = object{
		kind: &kind{ref.APIVersion, ref.Kind}, namespace: ref.Namespace, name: ref.Name,
		uid: ref.UID, resourceVersion: ref.ResourceVersion, fieldPath: ref.FieldPath,
	}
	k.remember(to, o.kind)
	return nil
}

// referByType does it if the kind of the object's type is known, and the object
// does not tell another.
func (k *kinds) referByType(o *object, to runtime.Object) bool {
	value := reflect.ValueOf(to)
	if value.Kind() != reflect.Pointer || value.IsNil() {
		return false
	}
	known, ok := k.known.Load(value.Type())
	if !ok || tells(to) {
		return false
	}
	of, err := meta.Accessor(to)
	if err != nil {
		return false
	}
	o.kind = known.(*kind)
	o.namespace, o.name = of.GetNamespace(), of.GetName()
	o.uid, o.resourceVersion = of.GetUID(), of.GetResourceVersion()
	return true
}

// remember keeps the kind of the object's type, unless the object told it
// itself: the next object of its type may tell another.
func (k *kinds) remember(object runtime.Object, of *kind) {
	t := reflect.TypeOf(object)
	if _, ref := object.(*corev1.ObjectReference); ref || t.Kind() != reflect.Pointer {
		return
	}
	if !tells(object) {
		k.known.Store(t, of)
	}
}

// tells is whether the object tells its kind.
func tells(object runtime.Object) bool {
	of := object.GetObjectKind()
	if m, ok := of.(*metav1.TypeMeta); ok && m.Kind == "" && m.APIVersion == "" {
		return false // the usual case, without parsing anything
	}
	return !of.GroupVersionKind().Empty()
}
