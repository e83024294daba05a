package jsonlines

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/internal/eventjson"
	"github.com/eventd/eventd/pkg/receiver"
)

// The input is what the apiserver decodes and stores: protobuf.
func FuzzLine(f *testing.F) {
	for _, e := range []corev1.Event{
		{},
		*records(0, 1, "a\nb\u2028\xff<&>")[0].Event,
		{FirstTimestamp: metav1.Unix(1e15, 0), EventTime: metav1.NewMicroTime(time.Unix(-1e12, 5)), Series: &corev1.EventSeries{Count: 2, LastObservedTime: metav1.NewMicroTime(time.Unix(1e17, 0))}},
		{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}, DeletionTimestamp: &metav1.Time{Time: time.Unix(-1e11, 0)}, ManagedFields: []metav1.ManagedFieldsEntry{{FieldsV1: metav1.NewFieldsV1("}\n{")}}}},
	} {
		data, err := e.Marshal()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var event corev1.Event
		if event.Unmarshal(data) != nil {
			return
		}
		var lines bytes.Buffer
		record := receiver.Record{ID: "a/1", Cluster: "prod", Event: &event, Observed: time.Unix(1e9, 0)}
		must(t, eventjson.NewEncoder(&lines).Encode(lineOf(&record)))
		if n := bytes.IndexByte(lines.Bytes(), '\n'); n != lines.Len()-1 {
			t.Fatalf("a newline at %d of %d bytes", n, lines.Len())
		}
		var got line
		must(t, json.Unmarshal(lines.Bytes(), &got))
		if got.ID != record.ID || got.ClusterName != record.Cluster || !got.ObservedTime.Equal(record.Observed) {
			t.Fatalf("the record is %+v", got)
		}
		replaced := bytes.Contains(lines.Bytes(), []byte(`\ufffd`)) // bytes that are no UTF-8
		if want := inJSON(&event); !replaced && !equality.Semantic.DeepEqual(want, got.Event) {
			t.Fatalf("decoded %+v, want %+v", got.Event, want)
		}
	})
}

// inJSON returns an Event with times as precise as they are in JSON.
func inJSON(event *corev1.Event) corev1.Event {
	shared := eventjson.Of(event)
	e := *shared.DeepCopy()
	for _, t := range []*metav1.Time{&e.CreationTimestamp, &e.FirstTimestamp, &e.LastTimestamp, e.DeletionTimestamp} {
		if t != nil {
			t.Time = t.Truncate(time.Second)
		}
	}
	if e.DeletionTimestamp.IsZero() {
		e.DeletionTimestamp = nil
	}
	e.EventTime.Time = e.EventTime.Truncate(time.Microsecond)
	if e.Series != nil {
		e.Series.LastObservedTime.Time = e.Series.LastObservedTime.Truncate(time.Microsecond)
	}
	return e
}
