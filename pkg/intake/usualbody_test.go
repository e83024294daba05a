package intake_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/eventd/eventd/pkg/intake"
	"github.com/eventd/eventd/pkg/occurrence"
)

// unusualBodies are bodies that only look usual.
func unusualBodies() []string {
	usual := string(encode(classic("b", 1), occurrence.CoreV1, jsonType))
	change := func(old, with string) string { return strings.Replace(usual, old, with, 1) }
	return []string{
		"\xef\xbb\xbf" + usual, usual + "x", usual + usual, usual[:len(usual)-3], "", "null", "[]", `{}`,
		change(`"reason":`, `"reason":"other","reason":`), change(`"reason"`, `"Reason"`), change(`"reason"`, `"r\u0065ason"`),
		change(`"kind":"Event"`, `"kind":"Event","KIND":"Pod"`), change(`"kind":"Event",`, ``), change(`"v1"`, `"v2"`),
		change(`"count":1`, `"count":1.0`), change(`"count":1`, `"count":1e3`), change(`"count":1`, `"count":01`), change(`"count":1`, `"count":-1`),
		change(`"count":1`, `"count":99999999999999999999`), change(`"count":1`, `"count":"1"`), change(`"count":1`, `"count":null`),
		change(`"count":1`, `"count":2147483648`), change(`"count":1`, `"count":-0`),
		change(`Started`, "\xff"), change(`Started`, `\ud800`), change(`Started`, `\ud83d\ude00`), change(`Started`, `\u0000`), change(`Started`, "a\tb"),
		change(`Started`, `\x`), change(`Started`, `\/\b\f`), change(`"involvedObject":{`, `"involvedObject":{"nonsense":`+strings.Repeat("[", 40)+strings.Repeat("]", 40)+`,`),
		change(`"metadata":{`, `"metadata":{"generateName":"x-",`), change(`"metadata":{`, `"metadata":{"labels":{"a":"b"},`),
		change(`"metadata":{`, `"metadata":{"finalizers":["a"],`), change(`"metadata":{`, `"metadata":{"ownerReferences":[{},{}],`),
		change(`"metadata":{`, `"metadata":{"resourceVersion":"5",`), change(`"metadata":{`, `"metadata":{"uid":"x",`),
		change(`"namespace":"ns"`, `"namespace":"other"`), change(`"name":"b"`, `"name":""`), change(`"name":"b"`, `"name":"a/b"`),
		change(`"2023-11-14T22:13:20Z"`, `"2023-11-14T22:13:20.5Z"`), change(`"2023-11-14T22:13:20Z"`, `"2023-11-14T22:13:20+01:00"`),
		change(`"2023-11-14T22:13:20Z"`, `"2023-02-30T22:13:20Z"`), change(`"2023-11-14T22:13:20Z"`, `"2023-11-14T22:13:60Z"`), change(`"2023-11-14T22:13:20Z"`, `""`),
		change(`"eventTime":null`, `"eventTime":"2023-11-14T22:13:20Z"`), change(`"eventTime":null`, `"eventTime":"2023-11-14T22:13:20.000001Z"`),
		change(`"eventTime":null`, `"series":{},"eventTime":null`), change(`"eventTime":null`, `"series":null,"eventTime":null`), change(`"eventTime":null`, `"related":{},"eventTime":null`),
		strings.ReplaceAll(usual, ",", " ,\n\t"), strings.ReplaceAll(usual, ",", "\v,"), strings.ReplaceAll(usual, ",", "\f,"),
		change(`"kind":"Event"`, `"kind":"Pod"`), change(`"kind":"Event"`, `"kind":"Event","kind":"Event"`), change(`"apiVersion":"v1",`, ``),
		change(`"apiVersion":"v1"`, `"apiVersion":"v1","apiVersion":"v1"`),
		change(`"name":"b"`, `"name":"b","name":"c"`), change(`"namespace":"ns"`, `"namespace":"ns","namespace":"ns"`),
		change(`"metadata":{`, `"metadata":{"creationTimestamp":null,"creationTimestamp":null,`),
		change(`"involvedObject":{`, `"involvedObject":{"kind":"A","kind":"B",`), change(`"involvedObject":{`, `"involvedObject":{"fieldPath":"a","fieldPath":"b",`),
		change(`"involvedObject":{`, `"involvedObject":{"uid":"a","uid":"b",`), change(`"involvedObject":{`, `"involvedObject":{"fieldPath":"a",`),
		change(`"source":{`, `"source":{"host":"a","host":"b",`), change(`"source":{`, `"source":{"component":"a","component":"b",`),
		change(`"eventTime":null`, `"series":{"count":1,"count":2},"eventTime":null`),
		change(`"eventTime":null`, `"series":{"lastObservedTime":"2023-11-14T22:13:20.000001Z","lastObservedTime":null},"eventTime":null`),
		change(`"reason":`, `"note":"a","reason":`), change(`"count":1`, `"count":`), change(`"count":1`, `"count":1234567890`), change(`"count":1`, `"count":999999999`),
		change(`}`, `,}`), change(`"count":1`, `"count":1,`),
		change(`Started`, "a\x1fb"), change(`Started`, "a\x1eb"), change(`Started`, `\ud7ff`), change(`Started`, `\udfff`), change(`Started`, `\ue000`),
		change(`Started`, `\'`), change(`Started`, `\u00G0`), change(`Started`, `\u00g0`), change(`Started`, `\u00fF`), change(`Started`, `\u12`), change(`Started`, `ns`), change(`Started`, `n2`),
		usual[:strings.Index(usual, `Started`)] + `\u`, usual[:strings.Index(usual, `Started`)] + `\`,
		change(`"2023-11-14T22:13:20Z"`, `"2023-11-14T22:13:20z"`), change(`"2023-11-14T22:13:20Z"`, `"2023-11-14T22:13:200"`), change(`"2023-11-14T22:13:20Z"`, `"2023-11-14T22:13:2\u0030Z"`),
	}
}

// FuzzUsualBody decodes any body. What the fast path decodes, the apiserver's strict decoder decodes alike, without
// an error or a warning.
func FuzzUsualBody(f *testing.F) {
	for _, body := range unusualBodies() {
		f.Add(false, false, []byte(body))
		f.Add(true, false, []byte(body))
	}
	for _, r := range usualRequests() {
		f.Add(apiOfPath(r.path) == occurrence.EventsV1, r.contentType == protoType, r.body)
	}
	f.Fuzz(func(t *testing.T, newAPI, inProtobuf bool, body []byte) {
		api, mediaType := occurrence.CoreV1, jsonType
		if newAPI {
			api = occurrence.EventsV1
		}
		if inProtobuf {
			mediaType = protoType
		}
		got := intake.UsualEvent(api, mediaType, body)
		if got == nil {
			return
		}
		want, err := intake.GenericEvent(api, mediaType, bytes.Clone(body))
		if err != nil {
			t.Fatalf("%q is decoded, and not by the apiserver: %v", body, err)
		}
		clear(body) // nothing of it is kept
		got.TypeMeta, want.TypeMeta = metav1.TypeMeta{}, metav1.TypeMeta{}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("decoded (-apiserver +fast path):\n%s", diff)
		}
	})
}

// FuzzUsualAnswer encodes any Event. The fast path writes the same bytes as the apiserver's encoder.
func FuzzUsualAnswer(f *testing.F) {
	for _, event := range []*corev1.Event{classic("a", 1), newStyle("a"), {}} {
		f.Add(must(event.Marshal()))
		event.Message = "\x00\x1f\x7f\"\\/<>&\b\f\n\r\t\u2028\u2029\uffff\xff\xc0ü😀"
		event.Related, event.Series = &corev1.ObjectReference{Name: "<"}, &corev1.EventSeries{Count: -1}
		f.Add(must(event.Marshal()))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		event := &corev1.Event{}
		if event.Unmarshal(data) != nil {
			return
		}
		for _, api := range []occurrence.API{occurrence.CoreV1, occurrence.EventsV1} {
			for _, mediaType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
				got := intake.UsualAnswer(event, api, mediaType)
				want, err := intake.GenericAnswer(event, api, mediaType)
				if got != nil && (err != nil || !bytes.Equal(got, want)) {
					t.Errorf("%v, %s:\n%q, not\n%q, %v", api, mediaType, got, want, err)
				}
			}
		}
	})
}
