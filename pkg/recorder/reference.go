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

// kinds builds references to objects as client-go's tools/reference does. It caches the
// kinds of Go types, since the lookup in the scheme takes most of the time. It is safe for
// use by many goroutines.
type kinds struct {
	scheme *runtime.Scheme
	// cached has the *kind of each reflect.Type. It is bounded by the types of the
	// scheme.
	cached sync.Map
}

// kind is the kind of an object, from the scheme or from its TypeMeta.
type kind struct{ apiVersion, kind string }

// object is an ObjectReference with a shared kind, which makes it smaller.
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

// refer sets o to a reference to the object to. It returns an error if the object cannot
// be referenced, or if its methods panic.
func (k *kinds) refer(o *object, to runtime.Object) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("a method of %T panicked", to)
		}
	}()
	if k.referByType(o, to) {
		return nil
	}
	// GetReference returns an ObjectReference as it is, even a nil one.
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
	k.cache(to, o.kind)
	return nil
}

// referByType is refer for an object without a kind of its own, whose type is cached.
// Otherwise it returns false.
func (k *kinds) referByType(o *object, to runtime.Object) bool {
	value := reflect.ValueOf(to)
	if value.Kind() != reflect.Pointer || value.IsNil() {
		return false
	}
	cached, ok := k.cached.Load(value.Type())
	if !ok || hasKind(to) {
		return false
	}
	of, err := meta.Accessor(to)
	if err != nil {
		return false
	}
	o.kind = cached.(*kind)
	o.namespace, o.name = of.GetNamespace(), of.GetName()
	o.uid, o.resourceVersion = of.GetUID(), of.GetResourceVersion()
	return true
}

// cache adds the kind of the object's type, unless the kind is that of the object: the
// next object of the type may have another.
func (k *kinds) cache(object runtime.Object, of *kind) {
	t := reflect.TypeOf(object)
	if _, ref := object.(*corev1.ObjectReference); ref || t.Kind() != reflect.Pointer {
		return
	}
	if !hasKind(object) {
		k.cached.Store(t, of)
	}
}

// hasKind reports whether the object has a kind of its own, in its TypeMeta.
func hasKind(object runtime.Object) bool {
	of := object.GetObjectKind()
	if m, ok := of.(*metav1.TypeMeta); ok && m.Kind == "" && m.APIVersion == "" {
		return false // the usual case, without parsing anything
	}
	return !of.GroupVersionKind().Empty()
}
