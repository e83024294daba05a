package remote

import (
	"math/rand/v2"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/occurrence"
)

// nameOf returns a name for an item that no other has, so that eventd knows it again. It cannot
// be guessed: who knows it could report under it first.
func nameOf(i *item) string {
	return identity.UniqueName(i.latest.Event.InvolvedObject.Name, identity.Digest(i.series), rand.Uint64())
}

// eventOf returns the Event of an item: the latest one, with all that it counts.
func eventOf(i *item) corev1.Event {
	e := *i.latest.Event // shared, so only its own fields are changed
	e.ObjectMeta = metav1.ObjectMeta{Namespace: e.Namespace, Name: i.name, Labels: e.Labels, Annotations: e.Annotations,
		OwnerReferences: e.OwnerReferences, Finalizers: e.Finalizers}
	if e.EventTime.IsZero() {
		e.FirstTimestamp, e.Count = i.firstTimestamp, int32(i.weight)
		return e
	}
	e.Series = nil
	if i.weight > 1 {
		e.Series = &corev1.EventSeries{Count: int32(i.weight), LastObservedTime: e.EventTime}
	}
	e.EventTime = i.eventTime
	return e
}

// encode returns an EventList in protobuf, with the envelope of the apiserver's serializer.
func encode(to target, items []*item) ([]byte, error) {
	raw, err := encodeList(to.api, items)
	if err != nil {
		return nil, err
	}
	envelope := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: to.api.GroupVersion().String(), Kind: "EventList"}, Raw: raw}
	body := make([]byte, len(prefix)+envelope.Size())
	copy(body, prefix)
	_, err = envelope.MarshalTo(body[len(prefix):])
	return body, err
}

// prefix begins all bodies in protobuf (runtime/serializer/protobuf).
const prefix = "k8s\x00"

func encodeList(api occurrence.API, items []*item) ([]byte, error) {
	if api == occurrence.EventsV1 {
		var list eventsv1.EventList
		for _, i := range items {
			event := eventOf(i)
			list.Items = append(list.Items, *identity.ToEventsV1(&event))
		}
		return list.Marshal()
	}
	list := corev1.EventList{Items: make([]corev1.Event, 0, len(items))}
	for _, i := range items {
		list.Items = append(list.Items, eventOf(i))
	}
	return list.Marshal()
}
