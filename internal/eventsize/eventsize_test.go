package eventsize

import (
	"reflect"
	"strings"
	"testing"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestEveryPartOfAnEventIsCounted(t *testing.T) {
	const large = 10_000
	parts := 0
	grow := func(path string, e *corev1.Event) {
		parts++
		if got := Of(e) - Of(&corev1.Event{}); got < large {
			t.Errorf("%d bytes in %s are counted as %d", large, path, got)
		}
	}
	// visit makes each string below v large, one at a time.
	var visit func(path string, e *corev1.Event, v reflect.Value)
	visit = func(path string, e *corev1.Event, v reflect.Value) {
		switch v.Kind() {
		case reflect.String:
			v.SetString(strings.Repeat("x", large))
			grow(path, e)
		case reflect.Struct:
			for i := range v.NumField() {
				if v.Field(i).CanSet() {
					visit(path+"."+v.Type().Field(i).Name, e, v.Field(i))
				}
			}
		case reflect.Pointer:
			v.Set(reflect.New(v.Type().Elem()))
			visit(path, e, v.Elem())
		case reflect.Slice:
			if v.Type().Elem().Kind() == reflect.Uint8 {
				v.SetBytes(make([]byte, large))
				grow(path, e)
				break
			}
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			visit(path, e, v.Index(0))
		case reflect.Map:
			v.Set(reflect.ValueOf(map[string]string{"k": strings.Repeat("x", large)}))
			grow(path+" values", e)
			v.Set(reflect.ValueOf(map[string]string{strings.Repeat("x", large): ""}))
			grow(path+" keys", e)
		}
		v.SetZero()
	}
	e := &corev1.Event{}
	visit("Event", e, reflect.ValueOf(e).Elem())
	if parts < 40 {
		t.Errorf("only %d parts are tested", parts)
	}
	empty := &corev1.Event{}
	empty.OwnerReferences = make([]metav1.OwnerReference, 1000)
	empty.ManagedFields = make([]metav1.ManagedFieldsEntry, 1000)
	empty.Finalizers = make([]string, 1000)
	size := 1000 * int64(unsafe.Sizeof(metav1.OwnerReference{})+unsafe.Sizeof(metav1.ManagedFieldsEntry{})+unsafe.Sizeof(""))
	if got := Of(empty); got < size {
		t.Errorf("lists of %d bytes are counted as %d", size, got)
	}
}
