package recorder

import (
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/reference"
)

// Types of other modules. All but unregistered are in ownScheme, twoVersions in two
// versions.
type (
	own struct { // a plain one
		metav1.TypeMeta
		metav1.ObjectMeta
	}
	twoVersions  struct{ own }
	unregistered struct{ own }
	kindless     struct { // without TypeMeta
		metav1.ObjectMeta
	}
	accessor struct { // its metadata may be nil
		metav1.TypeMeta
		meta *metav1.ObjectMeta
	}
	nilTolerant struct{ own } // its methods accept nil
	byValue     struct {      // not a pointer
		*metav1.TypeMeta
		*metav1.ObjectMeta
	}
	panicking struct{ own } // its methods panic
)

func (o *own) DeepCopyObject() runtime.Object           { return o }
func (o *twoVersions) DeepCopyObject() runtime.Object   { return o }
func (o *unregistered) DeepCopyObject() runtime.Object  { return o }
func (o *kindless) DeepCopyObject() runtime.Object      { return o }
func (o *kindless) GetObjectKind() schema.ObjectKind    { return schema.EmptyObjectKind }
func (o *accessor) DeepCopyObject() runtime.Object      { return o }
func (o *nilTolerant) DeepCopyObject() runtime.Object   { return o }
func (o *nilTolerant) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }
func (o *nilTolerant) GetName() string                  { return "nil-tolerant" }
func (o *nilTolerant) GetNamespace() string             { return "" }
func (o *nilTolerant) GetUID() types.UID                { return "" }
func (o *nilTolerant) GetResourceVersion() string       { return "" }
func (o byValue) DeepCopyObject() runtime.Object        { return o }
func (o *panicking) DeepCopyObject() runtime.Object     { return o }
func (o *panicking) GetName() string                    { panic("no") }
func (o *accessor) GetObjectMeta() metav1.Object {
	if o.meta == nil {
		return nil
	}
	return o.meta
}

func ownScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	add := func(version string, types ...runtime.Object) {
		s.AddKnownTypes(schema.GroupVersion{Group: "example.com", Version: version}, types...)
	}
	add("v2", &own{}, &twoVersions{}, &kindless{}, &accessor{}, &nilTolerant{}, &panicking{})
	add("v1", &twoVersions{})
	return s
}

// asClientGo returns the reference of client-go's recorder. It failed if client-go
// returned an error, panicked, or dereferenced a nil reference.
func asClientGo(s *runtime.Scheme, object runtime.Object) (ref corev1.ObjectReference, failed bool) {
	defer func() { failed = failed || recover() != nil }()
	found, err := reference.GetReference(s, object)
	if err != nil {
		return ref, true
	}
	return *found, false
}

func (k *kinds) to(it runtime.Object) (corev1.ObjectReference, error) {
	var o object
	if err := k.refer(&o, it); err != nil {
		return corev1.ObjectReference{}, err
	}
	return o.reference(), nil
}

// References are the same, however often an object of the type was seen before, and with
// which kind.
func TestReferencesAreThoseOfClientGo(t *testing.T) {
	named := metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "u", ResourceVersion: "7"}
	podKind := metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	ownKind := metav1.TypeMeta{APIVersion: "example.org/v9", Kind: "Other"}
	objects := []runtime.Object{
		nil,
		(*corev1.Pod)(nil),
		&corev1.Pod{ObjectMeta: named},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "another"}},
		&corev1.Pod{TypeMeta: podKind, ObjectMeta: named},
		&corev1.Pod{TypeMeta: ownKind, ObjectMeta: named},
		&corev1.Pod{TypeMeta: metav1.TypeMeta{Kind: "Pod"}, ObjectMeta: named},
		&corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1"}, ObjectMeta: named},
		&corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "a/b/c", Kind: "Pod"}, ObjectMeta: named},
		&corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "a/b/c"}, ObjectMeta: named},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}},
		&appsv1.Deployment{ObjectMeta: named},
		&corev1.Event{ObjectMeta: named},
		(*corev1.ObjectReference)(nil),
		&corev1.ObjectReference{},
		&corev1.ObjectReference{Kind: "Pod", Name: "web", FieldPath: "spec.containers{app}"},
		&corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "9"}},
		&corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}},
		(*corev1.PodList)(nil),
		&metav1.Status{},
		&metav1.PartialObjectMetadata{ObjectMeta: named},
		&metav1.PartialObjectMetadata{TypeMeta: ownKind, ObjectMeta: named},
		&metav1.PartialObjectMetadata{TypeMeta: podKind, ObjectMeta: named},
		&metav1.PartialObjectMetadataList{TypeMeta: ownKind},
		&unstructured.Unstructured{},
		&unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "web"}}},
		&unstructured.Unstructured{Object: map[string]any{"kind": "A", "metadata": map[string]any{"name": "web"}}},
		&unstructured.Unstructured{Object: map[string]any{"apiVersion": "g/v1", "kind": "A", "metadata": map[string]any{"name": "web", "uid": "u"}}},
		&unstructured.Unstructured{Object: map[string]any{"apiVersion": "g/v1", "kind": "B", "metadata": map[string]any{"name": "web"}}},
		(*unstructured.Unstructured)(nil),
		&unstructured.UnstructuredList{},
		&unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "g/v1", "kind": "AList"}},
		&runtime.Unknown{},
		&own{ObjectMeta: named},
		&own{TypeMeta: ownKind, ObjectMeta: named},
		&twoVersions{own{ObjectMeta: named}},
		&twoVersions{own{TypeMeta: ownKind}},
		&unregistered{own{ObjectMeta: named}},
		&unregistered{own{TypeMeta: ownKind, ObjectMeta: named}},
		&kindless{ObjectMeta: named},
		&accessor{meta: &named},
		&accessor{},
		&accessor{TypeMeta: ownKind, meta: &named},
		(*accessor)(nil),
		&nilTolerant{own{ObjectMeta: named}},
		(*nilTolerant)(nil),
		byValue{&metav1.TypeMeta{}, &named},
		byValue{&ownKind, &named},
		byValue{},
		&panicking{},
	}
	for name, s := range map[string]*runtime.Scheme{"client-go's scheme": scheme.Scheme, "another scheme": ownScheme(), "no scheme": nil} {
		for _, begin := range []int{0, 1, len(objects) / 2} {
			k := &kinds{scheme: s}
			for i := range 2*len(objects) + begin {
				object := objects[(begin+i)%len(objects)]
				want, wantErr := asClientGo(s, object)
				got, err := k.to(object)
				if (err != nil) != wantErr {
					t.Errorf("%s: %T %+v: error %v, want one: %v", name, object, object, err, wantErr)
				}
				if diff := cmp.Diff(want, got); diff != "" && err == nil {
					t.Errorf("%s: %T %+v: %s", name, object, object, diff)
				}
			}
			if _, ok := k.cached.Load(reflect.TypeFor[*corev1.ObjectReference]()); ok {
				t.Errorf("%s: the kind of a reference is cached", name)
			}
		}
	}
}
