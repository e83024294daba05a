package intake

import (
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/occurrence"
)

var (
	scheme = newScheme()
	codecs = serializer.NewCodecFactory(scheme)
)

// newScheme registers the Events of both APIs. Requests of both are handled as Events of
// core/v1, which has all fields. For events.k8s.io it is the internal version.
func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	// core/v1 is first: validation errors have the first kind of a type, and the
	// apiserver uses that of core/v1 for both APIs.
	s.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.Event{})
	s.AddKnownTypes(eventsv1.SchemeGroupVersion, &eventsv1.Event{})
	s.AddKnownTypes(hub(occurrence.EventsV1), &corev1.Event{})
	metav1.AddToGroupVersion(s, corev1.SchemeGroupVersion)
	metav1.AddToGroupVersion(s, eventsv1.SchemeGroupVersion)
	s.AddUnversionedTypes(corev1.SchemeGroupVersion,
		&metav1.Status{}, &metav1.APIVersions{}, &metav1.APIGroupList{}, &metav1.APIGroup{}, &metav1.APIResourceList{})
	utilruntime.Must(s.AddConversionFunc((*eventsv1.Event)(nil), (*corev1.Event)(nil), func(in, out any, _ conversion.Scope) error {
		*out.(*corev1.Event) = *identity.ToCoreV1(in.(*eventsv1.Event))
		return nil
	}))
	utilruntime.Must(s.AddConversionFunc((*corev1.Event)(nil), (*eventsv1.Event)(nil), func(in, out any, _ conversion.Scope) error {
		*out.(*eventsv1.Event) = *identity.ToEventsV1(in.(*corev1.Event))
		return nil
	}))
	return s
}

// hub is the internal version for requests of an API.
func hub(api occurrence.API) schema.GroupVersion {
	if api == occurrence.EventsV1 {
		return schema.GroupVersion{Group: eventsv1.GroupName, Version: runtime.APIVersionInternal}
	}
	return corev1.SchemeGroupVersion
}
