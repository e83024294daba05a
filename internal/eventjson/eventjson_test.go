package eventjson

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestEventDecodesWhateverItsTimes(t *testing.T) {
	good := time.Date(2026, 11, 23, 7, 0, 0, 0, time.UTC)
	with := func(at time.Time) *corev1.Event {
		last := metav1.NewTime(at)
		return &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{
				UID: "a", CreationTimestamp: last, DeletionTimestamp: &last, ManagedFields: make([]metav1.ManagedFieldsEntry, 1),
			},
			FirstTimestamp: last, LastTimestamp: last, EventTime: metav1.MicroTime(last),
			Series: &corev1.EventSeries{Count: 2, LastObservedTime: metav1.MicroTime(last)},
		}
	}
	kept := with(good)
	kept.TypeMeta, kept.ManagedFields = metav1.TypeMeta{APIVersion: "v1", Kind: "Event"}, nil
	unset := with(time.Time{})
	unset.TypeMeta, unset.ManagedFields, unset.DeletionTimestamp = kept.TypeMeta, nil, nil

	for at, want := range map[time.Time]*corev1.Event{
		good:                            kept,
		time.Unix(253402300799, 0):      with(time.Unix(253402300799, 0)),
		time.Unix(253402300800, 0):      unset, // the year 10000
		time.Unix(-62167219201, 0):      unset, // the year -1
		time.Unix(1<<62, 0):             unset,
		good.In(time.FixedZone("", -9)): kept,
	} {
		event := with(at)
		before := event.DeepCopy()
		var out bytes.Buffer
		encoded := Of(event)
		if err := NewEncoder(&out).Encode(&encoded); err != nil {
			t.Fatal(err)
		}
		want.TypeMeta, want.ManagedFields = kept.TypeMeta, nil
		var got corev1.Event
		if err := json.Unmarshal(out.Bytes(), &got); err != nil || !equality.Semantic.DeepEqual(&got, want) {
			t.Errorf("%s: decoded %+v, %v, want %+v", at, got, err, want)
		}
		if !equality.Semantic.DeepEqual(event, before) {
			t.Errorf("%s: the Event was changed to %+v", at, event)
		}
	}
}
